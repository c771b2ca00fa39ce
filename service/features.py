"""Of all hidden states of a text: which layers make its features, and how likeness is measured.

Pure: arrays in, arrays out. The strategies are those of Devlin et al. 2018, table 7, as an export
of an embedder has them, and a mix by given weights as in Peters et al. 2018. The embeddings count
as the first layer, and are not among "all" the layers that are summed.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: S tokens, L layers, D values, N and M vectors

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from service.errors import InvalidArgument

LAYERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "first": lambda states_SLD: states_SLD[:, 0],
    "last": lambda states_SLD: states_SLD[:, -1],
    "second_to_last": lambda states_SLD: states_SLD[:, -2],
    "sum_last_four": lambda states_SLD: states_SLD[:, -4:].sum(axis=1),
    "concat_last_four": lambda states_SLD: states_SLD[:, -4:].reshape(len(states_SLD), -1),
    "sum_all": lambda states_SLD: states_SLD[:, 1:].sum(axis=1),
}
MIX = "mix"
NEEDS_FOUR_LAYERS = ("sum_last_four", "concat_last_four")
POOLINGS = ("mean", "cls", "none")
DEFAULT_LAYERS, DEFAULT_POOLING = "last", "mean"
DEFAULT_MEASURE = "cosine"
MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda texts_ND, others_MD: unit(texts_ND) @ unit(others_MD).T,
    "dot": lambda texts_ND, others_MD: texts_ND @ others_MD.T,
    "scaled_dot": lambda texts_ND, others_MD: (
        texts_ND @ others_MD.T / np.float32(math.sqrt(texts_ND.shape[1]))
    ),
}
MAX_WEIGHTS_CHARACTERS = 4_096  # of a tensor request's, as text
SMALLEST_LENGTH = 1e-12  # of a vector that has a direction


@dataclass(frozen=True, slots=True)
class Features:
    """What to make of hidden states [S, L + 1, D] of one text."""

    layers: str = DEFAULT_LAYERS
    pooling: str = DEFAULT_POOLING
    weights: Sequence[float] = ()  # of a mix: one per layer, the embeddings' first

    def check(self, num_layers: int) -> None:
        """Raise `InvalidArgument` for what a model of so many layers, embeddings aside, has not."""
        if self.layers not in (*LAYERS, MIX):
            raise InvalidArgument(
                f"layers is '{self.layers}', expected one of {', '.join((*LAYERS, MIX))}"
            )
        if self.pooling not in POOLINGS:
            raise InvalidArgument(
                f"pooling is '{self.pooling}', expected one of {', '.join(POOLINGS)}"
            )
        if self.layers in NEEDS_FOUR_LAYERS and num_layers < 4:
            raise InvalidArgument(
                f"layers is '{self.layers}', but the model has only {num_layers} layers"
            )
        wanted = num_layers + 1 if self.layers == MIX else 0
        if len(self.weights) != wanted:
            raise InvalidArgument(
                f"weights has {len(self.weights)} elements, expected {wanted} for layers "
                f"'{self.layers}' of a model with {num_layers} layers and embeddings"
            )
        if not all(map(math.isfinite, self.weights)):
            raise InvalidArgument(f"weights is {list(self.weights)}, expected finite numbers")

    def of(self, states_SLD: np.ndarray) -> np.ndarray:
        """[S, D'] for pooling "none", else [1, D']; special tokens count, as in an embedder."""
        if self.layers == MIX:
            features_SD = np.tensordot(states_SLD, np.array(self.weights, np.float32), (1, 0))
        else:
            features_SD = LAYERS[self.layers](states_SLD)
        if self.pooling == "none":
            return features_SD
        if self.pooling == "cls":
            return features_SD[:1]
        pooled_1D: np.ndarray = features_SD.mean(axis=0, keepdims=True)
        return pooled_1D


def unit(vectors_ND: np.ndarray) -> np.ndarray:
    """[N, D] of length 1; a vector without direction stays what it is."""
    lengths_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    units_ND: np.ndarray = vectors_ND / np.maximum(lengths_N1, SMALLEST_LENGTH)
    return units_ND


def similarity(measure: str, texts_ND: np.ndarray, others_MD: np.ndarray) -> np.ndarray:
    """[N, M]: how alike each text is to each of the others."""
    return MEASURES[measure](texts_ND, others_MD)


def parse_weights(text: str) -> tuple[float, ...]:
    """Numbers with commas between them, as a tensor request's parameter has them."""
    if len(text) > MAX_WEIGHTS_CHARACTERS:
        raise InvalidArgument(
            f"weights has {len(text)} characters, expected at most {MAX_WEIGHTS_CHARACTERS}"
        )
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError as error:
        raise InvalidArgument(f"weights is '{text}', expected numbers and commas") from error


def stacked(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """[N, D'] of one vector per text."""
    return np.concatenate(vectors) if vectors else np.empty((0, 0), np.float32)
