"""A model's own description, and its readers; no sessions."""
