"""Texts and conversations to token ids: tokenizers, chat templates, and the bounds of both."""
