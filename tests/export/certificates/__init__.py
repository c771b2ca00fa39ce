"""Tests of export/certificates/."""
