"""Tests of service/repository/."""
