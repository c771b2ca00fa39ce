"""Tests of service/generation/steps/."""
