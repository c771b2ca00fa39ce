"""The attention weights of every token of a text, by layer and head.

A text is computed alone: its matrices take layers x heads x tokens^2 values, which bounds its
length at export. A model with a target gives the target's attention to the source.
"""
# ruff: noqa: N803 - suffixes are array layouts: L layers, H heads, T queries, S keys

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from service.calls.answers import AttentionMatrix
from service.calls.features import Attend
from service.contract.manifest import Manifest
from service.contract.tensors import Arrays, Signature, TensorSpec
from service.errors import InvalidArgument, invalid_field
from service.serving.tasks.task import (
    BYTES,
    FP32,
    MAX_VALUES,
    TEXT,
    Ask,
    Fields,
    GraphOutput,
    Method,
    Outputs,
    Parameters,
    TextReply,
    TextTask,
    TextTaskModel,
    decode,
    tokens_of,
)
from service.text.tokenizer import SourceAndTargetTokenizer, Text

MAX_LISTED = 1_024  # of layers or heads that a parameter names


@dataclass(frozen=True, slots=True)
class Matrices:
    """The layers and heads whose matrices a request asks for, each from 0."""

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
        return self.chosen(attentions_LHTS)

    def chosen(self, attentions_LHTS: np.ndarray) -> np.ndarray:
        """The chosen layers and heads of all attentions, however many values they are."""
        matrices: np.ndarray = attentions_LHTS[np.ix_(self.layers, self.heads)]
        return matrices


def chosen_matrices(manifest: Manifest, layers: Sequence[int], heads: Sequence[int]) -> Matrices:
    """The layers and heads that a request names of a model's."""
    return Matrices(
        _places("layers", layers, manifest.num_layers),
        _places("heads", heads, manifest.num_heads),
    )


def _places(name: str, places: Sequence[int], count: int) -> tuple[int, ...]:
    """The places that a request names among `count`, all where it names none."""
    if len(places) > count:
        raise invalid_field(name, f"has {len(places)} elements, the model has {count}")
    for index in places:
        if not 0 <= index < count:
            raise invalid_field(name, f"has {index}, the model has {count}, from 0")
    if len(set(places)) < len(places):
        raise invalid_field(name, f"repeats one of {list(places)[:8]}")
    return tuple(places) or tuple(range(count))


def _text_of(model: TextTaskModel, text: str, target: str) -> Text:
    """The text, or the pair of source and target.

    Raises `InvalidArgument` where a target is missing, or given to a model that has none.
    """
    if bool(target) != model.manifest.has_source:
        expected = "what it wrote of the text" if model.manifest.has_source else "none"
        raise invalid_field(
            "target", f"has {len(target)} characters, model '{model.name}' expects {expected}"
        )
    return (text, target) if target else text


def _ask(call: Attend, model: TextTaskModel) -> Ask:
    matrices = chosen_matrices(model.manifest, call.layers, call.heads)
    text = _text_of(model, call.text, call.target)

    def answer(reply: TextReply) -> Fields:
        (keys,) = reply.rows
        queries = keys.target or keys
        num_written = keys.target.num_tokens if keys.target else 0
        return {
            "num_tokens": keys.num_tokens + num_written,
            "queries": tokens_of(queries),
            "keys": tokens_of(keys),
            "matrices": matrices_of(matrices, reply.values[0]),
        }

    return Ask([text], answer, paths=lambda: {"texts[]": "text", "text_pairs[]": "target"})


def matrices_of(chosen: Matrices, attentions_LHTS: np.ndarray) -> list[AttentionMatrix]:
    """The chosen matrices of one input, by layer and head."""
    matrices = chosen.of(attentions_LHTS)
    return [
        AttentionMatrix(layer, head, weights.ravel())
        for layer, of_heads in zip(chosen.layers, matrices, strict=True)
        for head, weights in zip(chosen.heads, of_heads, strict=True)
    ]


def _tensors(
    model: TextTaskModel, parameters: Parameters
) -> Callable[[Sequence[Text], TextReply], Outputs]:
    """`attentions` of the layers and heads that the parameters name, of all without them."""
    matrices = chosen_matrices(
        model.manifest, _numbers("layers", parameters), _numbers("heads", parameters)
    )

    def read(_: Sequence[Text], reply: TextReply) -> Outputs:
        if not parameters.keys() & {"layers", "heads"}:
            return {"attentions": reply.values}
        return {"attentions": np.stack([matrices.chosen(each) for each in reply.values])}

    return read


def _numbers(name: str, parameters: Parameters) -> list[int]:
    text = str(parameters.get(name, ""))
    try:
        return [int(number) for number in text.split(",", MAX_LISTED) if text]
    except ValueError:
        raise InvalidArgument(
            f"the parameter {name} is {text[:80]!r}, expected whole numbers separated by commas"
        ) from None


def _texts_of(inputs: Arrays) -> Sequence[Text]:
    """Texts, or pairs of source and target."""
    texts = decode(inputs["text"])
    if "target" not in inputs:
        return texts
    return list(zip(texts, decode(inputs["target"]), strict=True))


ATTENTION = TextTask(
    name="attention",
    verb="show its attention",
    outputs=(
        GraphOutput(
            "attentions", lambda manifest: (manifest.num_layers, manifest.num_heads, -1, -1)
        ),
    ),
    signature=lambda manifest: Signature(
        (*TEXT, TensorSpec("target", BYTES, (1,))) if manifest.has_source else TEXT,
        (TensorSpec("attentions", FP32, (manifest.num_layers, manifest.num_heads, -1, -1)),),
    ),
    is_alone=True,
    inline_rows=0,  # a text's matrices are one row
    tokenizer=SourceAndTargetTokenizer,
    texts_of=_texts_of,
    tensors=_tensors,
)
METHODS = (Method(ATTENTION, Attend, _ask),)
