"""Tests of Attendant, a folder per package and one for the whole."""
