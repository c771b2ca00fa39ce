"""Comparisons of a model with what it was made of, as rows of one table."""
