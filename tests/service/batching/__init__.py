"""Tests of service/batching/."""
