"""The outputs that a graph should give once it is edited, from those that it gave before.

In NumPy, and by other formulas than the nodes: what the two have in common is the outcome alone.
"""
# ruff: noqa: N803 - suffixes are array layouts: S tokens, D hidden size

from collections.abc import Callable, Mapping
from math import erf

import numpy as np

from export.adopted.vectors import LEAST_LENGTH, NORM_EPS, VectorMap, VectorUse
from models.choices import TOGETHER


def vector_of(states_SD: np.ndarray, use: VectorUse) -> np.ndarray:
    """The vector of one text without padding, float32 [D]."""
    states = states_SD.astype(np.float32)
    vector = np.concatenate([_pooled(states, name) for name in use.pooling.split(TOGETHER)])
    for each in use.maps:
        vector = _mapped(vector, each)
    return unit(vector) if use.normalize else vector


def unit(vector: np.ndarray) -> np.ndarray:
    """A vector of length 1."""
    scaled: np.ndarray = vector / max(float(np.linalg.norm(vector)), LEAST_LENGTH)
    return scaled


def _pooled(states: np.ndarray, pooling: str) -> np.ndarray:
    count = len(states)
    places = np.arange(1, count + 1, dtype=np.float32)
    vectors: Mapping[str, np.ndarray] = {
        "mean": states.mean(axis=0),
        "cls": states[0],
        "last": states[-1],
        "max": states.max(axis=0),
        "mean_sqrt_len_tokens": states.sum(axis=0) / np.sqrt(np.float32(count)),
        "weightedmean": np.average(states, axis=0, weights=places).astype(np.float32),
    }
    return vectors[pooling]


def _mapped(vector: np.ndarray, each: VectorMap) -> np.ndarray:
    bias = 0 if each.bias is None else each.bias
    if each.weight is None:
        assert each.scale is not None, "a map has a weight or a scale"
        normed: np.ndarray = (vector - vector.mean()) / np.sqrt(vector.var() + NORM_EPS)
        scaled: np.ndarray = normed * each.scale + bias
        return scaled
    mapped = ACTIVATIONS[each.activation](each.weight @ vector + bias)
    if not each.adds_input:
        return mapped
    added: np.ndarray = mapped + (vector if each.residual is None else each.residual @ vector)
    return added


def _sigmoid(values: np.ndarray) -> np.ndarray:
    scores: np.ndarray = 1 / (1 + np.exp(-values))
    return scores


ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda values: values,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "relu": lambda values: np.maximum(values, 0),
    "gelu": lambda values: values * 0.5 * (1 + np.vectorize(erf)(values / np.sqrt(2))),
    "silu": lambda values: values * _sigmoid(values),
}
