"""Tests of models/networks/."""
