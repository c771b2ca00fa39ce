"""Tests of commands/ask/shown/."""
