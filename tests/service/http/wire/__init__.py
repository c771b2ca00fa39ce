"""Tests of service/http/wire/."""
