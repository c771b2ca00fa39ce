"""Tests of service/http/openai/."""
