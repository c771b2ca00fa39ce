"""Tests of service/team/."""
