"""Tests of commands/folders/."""
