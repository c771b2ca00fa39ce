"""Tests of playground/, in a real Chromium."""
