"""Answers as tables, pictures and files."""
