"""Tests of service/http/batches/."""
