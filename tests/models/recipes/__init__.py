"""Tests of models/recipes/."""
