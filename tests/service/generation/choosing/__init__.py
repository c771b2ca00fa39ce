"""Tests of service/generation/choosing/."""
