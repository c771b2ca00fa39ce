"""Tests of export/precision/."""
