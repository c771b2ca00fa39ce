"""Tests of service/calls/."""
