"""Encoders of BERT's inputs as engines: numpy beside the standard library, and no engine."""

from collections.abc import Callable, Collection

import numpy as np

from loadtests.compare.worker import Run, classifying, padded


def encoding(
    inputs: Collection[str], logits_of: Callable[[dict[str, np.ndarray]], np.ndarray]
) -> Run:
    """An encoder that is fed those of BERT's inputs which it has, INT64 [rows, tokens]."""

    def logits(rows: list[list[int]]) -> list[list[float]]:
        ids, mask = (np.array(values, np.int64) for values in padded(rows))
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feed = {name: array for name, array in known.items() if name in inputs}
        values: list[list[float]] = logits_of(feed).astype(float).tolist()
        return values

    return classifying(logits)
