"""The tasks: one record for each, with its requests, its answers and its graph's tensors."""
