"""Tests of export/checks/."""
