"""Weights that a folder stores rounded, as floating point numbers again."""
