"""Tests of service/text/."""
