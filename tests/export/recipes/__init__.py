"""Tests of export/recipes/."""
