"""Tests of service/serving/tasks/."""
