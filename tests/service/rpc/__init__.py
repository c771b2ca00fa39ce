"""Tests of service/rpc/."""
