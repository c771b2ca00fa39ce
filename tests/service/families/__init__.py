"""Tests of service/families/."""
