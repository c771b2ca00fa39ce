"""Every form in which people have checkpoints on disk, and what becomes of each."""
