"""Tests of service/http/kserve/."""
