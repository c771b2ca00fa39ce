"""Data sets that programs write."""
