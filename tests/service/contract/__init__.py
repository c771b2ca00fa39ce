"""Tests of service/contract/."""
