"""Tests of commands/ask/."""
