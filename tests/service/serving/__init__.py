"""Tests of service/serving/."""
