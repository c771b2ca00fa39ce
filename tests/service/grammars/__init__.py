"""Tests of service/grammars/."""
