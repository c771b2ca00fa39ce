"""Tests of the check on a GPU."""
