"""Sections that do what a section should not."""
