"""Tests of service/generation/decoders/."""
