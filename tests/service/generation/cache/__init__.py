"""Tests of service/generation/cache/."""
