"""Graphs that other programs exported, changed at their ends until the server takes them."""
