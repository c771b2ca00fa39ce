"""Linear probes: what the frozen layers of a network know of words."""
