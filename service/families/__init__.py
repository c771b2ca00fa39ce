"""Forms of families of models: marks of thoughts and of calls in texts."""
