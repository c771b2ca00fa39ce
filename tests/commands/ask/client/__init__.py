"""Tests of commands/ask/client/."""
