"""Ours and others, side by side: the same models, the same requests, in turns, on one machine."""
