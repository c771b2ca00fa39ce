"""What a model says of itself, and how that is read; no sessions."""
