"""Dialects of a chat that agents speak: Anthropic's Messages and OpenAI's Responses."""
