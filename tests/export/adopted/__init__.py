"""Graphs of other programs, edited for the server."""
