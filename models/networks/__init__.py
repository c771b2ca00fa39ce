"""The networks, as PyTorch modules, and the table of their names."""
