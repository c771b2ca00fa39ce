"""Servers over the network, ours among them: the same model, the same texts, the same client."""
