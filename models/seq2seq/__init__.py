"""Sequence to sequence: networks that read a source and write a target, tasks, and training."""
