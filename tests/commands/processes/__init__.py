"""Tests of commands/processes/."""
