"""Tests of service/generation/."""
