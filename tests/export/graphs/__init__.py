"""Tests of export/graphs/."""
