"""Quantization: graphs with fewer bits."""
