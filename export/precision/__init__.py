"""Graphs with fewer bits."""
