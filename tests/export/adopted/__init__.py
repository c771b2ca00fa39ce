"""Tests of export/adopted."""
