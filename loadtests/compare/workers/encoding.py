"""Encoders of BERT's inputs as engines: numpy beside the standard library, and no engine."""

from collections.abc import Callable, Collection

import numpy as np

from loadtests.compare.worker import Run, classifying, padded


def encoding(
    inputs: Collection[str], logits_of: Callable[[dict[str, np.ndarray]], np.ndarray]
) -> Run:
    """An encoder that is fed those of BERT's inputs which it has, INT64 [rows, tokens]."""

    def prepared(rows: list[list[int]]) -> dict[str, np.ndarray]:
        ids, mask = (np.array(values, np.int64) for values in padded(rows))
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: array for name, array in known.items() if name in inputs}

    def logits(feed: dict[str, np.ndarray]) -> list[list[float]]:
        values: list[list[float]] = logits_of(feed).astype(float).tolist()
        return values

    return classifying(logits, prepared)
