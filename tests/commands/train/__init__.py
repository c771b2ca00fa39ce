"""Tests of commands/train/."""
