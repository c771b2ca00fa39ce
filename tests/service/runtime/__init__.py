"""Tests of service/runtime/."""
