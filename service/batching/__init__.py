"""From requests to full runs of a session."""
