"""Tests of models/data/."""
