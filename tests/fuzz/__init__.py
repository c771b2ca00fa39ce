"""Hostile messages, many of them, against a whole server."""
