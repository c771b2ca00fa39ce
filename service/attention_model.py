"""A text model whose graph gives what every token looked at, by layer and head.

A text is computed alone: its matrices take layers x heads x tokens^2 values, which is what bounds
its length at export. A model with a target says where it looked in the source while it wrote that.
"""
# ruff: noqa: N803 - suffixes are array layouts: L layers, H heads, T that look, S that are looked at

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.errors import InvalidArgument
from service.models import InferRequest, TextModel, TextReply, decode
from service.request import Arrays
from service.tokenizer import SourceAndTargetTokenizer, Text

MAX_VALUES = 2**21  # of one answer, 8 MiB: it is made in a tenth of a second


@dataclass(frozen=True, slots=True)
class WantedMatrices:
    """Which layers and heads, each from 0."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]

    def of(self, attentions_LHTS: np.ndarray) -> np.ndarray:
        """[layers, heads, T, S] of those, or `InvalidArgument` where they are too much."""
        num_queries, num_keys = attentions_LHTS.shape[2:]
        num_values = len(self.layers) * len(self.heads) * num_queries * num_keys
        if num_values > MAX_VALUES:
            raise InvalidArgument(
                f"{len(self.layers)} layers x {len(self.heads)} heads x {num_queries} x {num_keys} "
                f"tokens are {num_values} values, an answer has at most {MAX_VALUES}: ask for "
                "fewer layers or heads, or a shorter text"
            )
        chosen: np.ndarray = attentions_LHTS[np.ix_(self.layers, self.heads)]
        return chosen


class AttentionModel(TextModel):
    """Shows where it looks."""

    tokenizer_type = SourceAndTargetTokenizer
    inline_rows = 0  # a text's matrices are one row

    def wanted(self, layers: Sequence[int], heads: Sequence[int]) -> WantedMatrices:
        """What a request wants, all where it names none; `InvalidArgument` for others."""
        manifest = self.manifest
        return WantedMatrices(
            _chosen("layers", layers, manifest.num_layers),
            _chosen("heads", heads, manifest.num_heads),
        )

    def text_of(self, text: str, target: str) -> Text:
        """What is read, or `InvalidArgument` where a target is missing, or for nobody."""
        if bool(target) != self.manifest.has_source:
            expected = "what it wrote of the text" if self.manifest.has_source else "none"
            raise InvalidArgument(
                f"target has {len(target)} characters, model '{self.name}' expects {expected}"
            )
        return (text, target) if target else text

    @staticmethod
    def texts_of(inputs: Arrays) -> Sequence[Text]:
        """Texts, or pairs of source and target."""
        texts = decode(inputs["text"])
        if "target" not in inputs:
            return texts
        return list(zip(texts, decode(inputs["target"]), strict=True))

    def _outputs_of(self, reply: TextReply, request: InferRequest) -> dict[str, np.ndarray]:  # noqa: ARG002
        return {"attentions": reply.values}


def _chosen(name: str, wanted: Sequence[int], count: int) -> tuple[int, ...]:
    if len(wanted) > count:
        raise InvalidArgument(f"{name} has {len(wanted)} elements, the model has {count}")
    for index in wanted:
        if not 0 <= index < count:
            raise InvalidArgument(f"{name} has {index}, the model has {count}, from 0")
    if len(set(wanted)) < len(wanted):
        raise InvalidArgument(f"{name} repeats one of {list(wanted)[:8]}")
    return tuple(wanted) or tuple(range(count))
