"""Tests of service/http/retrieval/."""
