"""Distances by which a graph moves numbers for clients: probabilities, similarities, scores.

A label, or the first word for a mask, can stay while its probability is off by a factor. So where
the number is the answer it is compared itself, by its largest change over texts. Of probabilities
it is also the largest divergence of a row, sum p log(p / q) in nats (Kullback and Leibler 1951),
p being float32's: it sees a small probability that is halved, which is a small change.
"""

from collections.abc import Callable, Mapping

import numpy as np

from export.errors import ExportError

# The largest changes of a precision that was not requested by name: decision 0017.
LARGEST_CHANGES = {
    "max_probability_change": 0.1,
    "max_divergence": 0.02,  # nats; of two likely words, one 1.2 times as likely as it should be
    "max_score_change": 0.25,  # in standard deviations of the scores
    "max_similarity_change": 0.05,  # of the cosine of two texts
}
SMALLEST = float(np.finfo(np.float32).tiny)  # of a length or a deviation that is divided by

# Figures of rows [N, values] by the graph and by the network.
Changes = Callable[[np.ndarray, np.ndarray], dict[str, float]]


def probability_changes(by_graph: np.ndarray, by_network: np.ndarray) -> dict[str, float]:
    """The largest change of a probability, and divergence of a row, of logits [N, choices]."""
    ours, theirs = _log_softmax(by_graph), _log_softmax(by_network)
    divergences = (np.exp(theirs) * (theirs - ours)).sum(axis=-1)
    return _changes(np.exp(ours) - np.exp(theirs), divergences)


def label_probability_changes(by_graph: np.ndarray, by_network: np.ndarray) -> dict[str, float]:
    """Changes of logits [N, labels], each of which has a probability of its own."""
    both = (np.stack([values, np.zeros_like(values)], axis=-1) for values in (by_graph, by_network))
    return probability_changes(*both)


def score_changes(by_graph: np.ndarray, by_network: np.ndarray) -> dict[str, float]:
    """The largest change of a number [N, outputs], in standard deviations of its output.

    Nothing where all texts have one number: it has no scale.
    """
    deviations = by_network.std(axis=0)
    changes = np.abs(by_graph - by_network).max(axis=0)[deviations > SMALLEST]
    if not len(changes):
        return {}
    return {"max_score_change": float((changes / deviations[deviations > SMALLEST]).max())}


def similarity_changes(by_graph: np.ndarray, by_network: np.ndarray) -> dict[str, float]:
    """The largest and the mean change of the cosine of two texts, of vectors [N, values]."""
    if len(by_graph) < 2:
        return {}
    pairs = np.triu_indices(len(by_graph), 1)
    ours, theirs = (cosines_of(vectors)[pairs] for vectors in (by_graph, by_network))
    changes = np.abs(ours - theirs)
    return {
        "max_similarity_change": float(changes.max()),
        "mean_similarity_change": float(changes.mean()),
    }


def check_changes(precision: str, figures: Mapping[str, float]) -> None:
    """Raise `ExportError` where a number moves too far; figures of other things are left."""
    for name, most in LARGEST_CHANGES.items():
        change = figures.get(name, 0.0)
        if not change <= most:
            raise ExportError(
                f"{name.replace('max_', 'largest ').replace('_', ' ')} from float32's is "
                f"{change}, the limit is {most}: calibrate on texts like yours (--calibration), "
                f"or ask for it by name (--precision {precision})"
            )


def cosines_of(vectors: np.ndarray) -> np.ndarray:
    """The cosine of every two of the vectors [N, values]: [N, N]."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.maximum(lengths, SMALLEST)
    cosines: np.ndarray = units @ units.T
    return cosines


def _changes(changes: np.ndarray, divergences: np.ndarray) -> dict[str, float]:
    return {
        "max_probability_change": float(np.abs(changes).max()),
        "max_divergence": float(np.maximum(divergences, 0).max()),
    }


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    above = logits - logits.max(axis=-1, keepdims=True)
    logs: np.ndarray = above - np.log(np.exp(above).sum(axis=-1, keepdims=True))
    return logs
