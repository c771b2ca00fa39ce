"""Tests of models/training/."""
