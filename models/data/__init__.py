"""Example data that the project ships; see the README beside it."""
