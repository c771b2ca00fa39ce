"""Hugging Face's inference API, over the typed API's operations."""
