"""Measurements of one part or one property each."""
