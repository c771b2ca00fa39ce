"""Logits to tokens: sampling parameters, penalties and log probabilities."""
