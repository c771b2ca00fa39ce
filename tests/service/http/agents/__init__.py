"""Tests of service/http/agents/."""
