"""Clients of other projects, unmodified, each in an environment of its own."""
