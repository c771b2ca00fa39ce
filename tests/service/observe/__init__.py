"""Tests of service/observe/."""
