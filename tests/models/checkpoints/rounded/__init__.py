"""Tests of models/checkpoints/."""
