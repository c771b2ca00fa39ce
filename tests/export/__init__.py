"""Tests of the path from a checkpoint to a model repository."""
