"""Tests of service/http/shared/."""
