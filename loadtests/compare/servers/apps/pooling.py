"""Vectors of texts from hidden states: for engines and servers alike, so numpy alone."""

import numpy as np


def pooled(hidden: np.ndarray, mask: np.ndarray, pooling: str) -> np.ndarray:
    """Vectors of length 1: of the first token (cls), or the mean of those that are no padding."""
    if pooling == "cls":
        vectors = hidden[:, 0]
    else:
        vectors = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
