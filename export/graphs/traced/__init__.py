"""Graphs of networks of transformers: traced from the library's own code."""
