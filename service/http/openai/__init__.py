"""OpenAI's API, and what vLLM's users know beside it, over the typed API's operations."""
