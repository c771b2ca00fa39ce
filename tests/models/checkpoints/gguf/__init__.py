"""Tests of models/checkpoints/gguf/."""
