"""Tests of commands/."""
