"""The edit of an encoder's graph for each task, and the outputs that the edited graph must give.

One row per task in `ADOPTIONS`. Decoders have an adoption of their own. Imports no PyTorch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto

from export.adopted.outputs import (
    EMBEDDING,
    LOGITS,
    READY_VECTORS,
    SPANS,
    STATES,
    check_size,
    found,
    give_logits,
    give_masks,
    give_spans,
    give_tokens,
    give_vectors,
    outputs_of,
)
from export.adopted.reference import unit, vector_of
from export.adopted.vectors import VectorUse

Outputs = Mapping[str, np.ndarray]  # of a run of one text, by name
Expected = Callable[[Outputs, np.ndarray], np.ndarray]  # of its outputs, and its ids [S]


@dataclass(frozen=True, slots=True)
class Purpose:
    """A task, and what a graph needs to know for it."""

    task: str
    num_labels: int = 0  # 0 where they are not counted
    mask_token_id: int = 0
    vectors: VectorUse | None = None
    has_own_vectors: bool = True  # whether the graph's own vectors of texts are taken, if there


@dataclass(frozen=True, slots=True)
class Adopted:
    """The output of an edited graph, and how it is computed from the graph's own outputs."""

    output: str
    originals: tuple[str, ...]
    expected: Expected


def adopt(model: ModelProto, purpose: Purpose) -> Adopted:
    """Edit the outputs of a graph. Raises `ExportError` where it has not what the task needs."""
    return ADOPTIONS[purpose.task](model, purpose)


def num_outputs(model: ModelProto, task: str) -> int | None:
    """The logits of a text or token as the graph states them; None where it does not."""
    if task not in ("text-classification", "pair-scoring", *OF_TOKENS, "image-classification"):
        return None
    axes = 3 if task in OF_TOKENS else 2
    stated = outputs_of(model)[found(model, LOGITS, num_axes=axes, task=task)]
    return stated[-1] if stated else None


def _scores(model: ModelProto, purpose: Purpose) -> Adopted:
    output = found(model, LOGITS, num_axes=2, task=purpose.task)
    if purpose.num_labels:
        check_size(model, output, purpose.num_labels, "labels")
    give_logits(model, output)
    return Adopted(LOGITS, (output,), lambda given, _: given[output])


def _vectors(model: ModelProto, purpose: Purpose) -> Adopted:
    there = outputs_of(model)
    ready = next((name for name in READY_VECTORS if len(there.get(name, ())) == 2), None)
    use = purpose.vectors
    assert use is not None, "the caller says how vectors are made"
    if ready is not None and purpose.has_own_vectors:
        give_vectors(model, ready, use, is_text=True)
        make = unit if use.normalize else np.asarray
        return Adopted(EMBEDDING, (ready,), lambda given, _: make(given[ready][0])[None])
    output = found(model, *STATES, num_axes=3, task=purpose.task)
    give_vectors(model, output, use, is_text=False)
    return Adopted(EMBEDDING, (output,), lambda given, _: vector_of(given[output][0], use)[None])


def _tokens(model: ModelProto, purpose: Purpose) -> Adopted:
    output = found(model, LOGITS, num_axes=3, task=purpose.task)
    check_size(model, output, purpose.num_labels, "labels")
    give_tokens(model, output)
    return Adopted(LOGITS, (output,), lambda given, _: given[output][0])


def _spans(model: ModelProto, purpose: Purpose) -> Adopted:
    start, end = (found(model, name, num_axes=2, task=purpose.task) for name in SPANS)
    give_spans(model, start, end)
    return Adopted(
        LOGITS,
        (start, end),
        lambda given, _: np.stack([given[start][0], given[end][0]], axis=1),
    )


def _masks(model: ModelProto, purpose: Purpose) -> Adopted:
    output = found(model, LOGITS, num_axes=3, task=purpose.task)
    mask = purpose.mask_token_id
    give_masks(model, output, mask)
    return Adopted(LOGITS, (output,), lambda given, ids: given[output][0][ids == mask])


OF_TOKENS = ("token-classification",)
ADOPTIONS: Mapping[str, Callable[[ModelProto, Purpose], Adopted]] = {
    "text-classification": _scores,
    "pair-scoring": _scores,
    "image-classification": _scores,
    "embedding": _vectors,
    "token-classification": _tokens,
    "question-answering": _spans,
    "fill-mask": _masks,
}
