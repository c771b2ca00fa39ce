"""Calls about what is inside of a network: the states of its layers, and its attention."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from service.calls.answers import Answered, AttentionMatrix, Row, Token
from service.calls.record import U32, Call, Texts, said
from service.calls.texts import CUT

Layers: TypeAlias = (
    Literal[
        "", "first", "last", "second_to_last", "sum_last_four", "concat_last_four", "sum_all", "mix"
    ]
    | int
)
Pooling: TypeAlias = Literal["", "mean", "cls", "none"] | int


class ExtractFeatures(Call, frozen=True):
    """Texts whose hidden states are asked for."""

    texts: Annotated[
        Texts, said("Texts to read.", counted=True, also={"huggingface": "inputs"})
    ] = ()
    truncate: Annotated[bool, said(CUT)] = False
    layers: Annotated[
        Layers,
        said(
            "Which hidden states to return. The first layer is the embeddings; the last one "
            "depends most on the context."
        ),
    ] = ""
    pooling: Annotated[
        Pooling,
        said(
            "How to make one vector per text: mean over its tokens, or cls, the first token's "
            "vector. With none, one vector per token is returned."
        ),
    ] = ""
    weights: Annotated[
        Sequence[float],
        said("Weight of a layer, if layers is mix; one for each layer, embeddings first."),
    ] = ()


class Attend(Call, frozen=True):
    """A text, and what was written of it, whose attention is asked for."""

    text: Annotated[str, said("Text that the model reads.", argument=True)] = ""
    target: Annotated[str, said("Encoder-decoders only: the output text for this input.")] = ""
    layers: Annotated[
        Sequence[int],
        said("Layer to show, counted from 0; by default all.", low=0, high=U32, flag="layer"),
    ] = ()
    heads: Annotated[
        Sequence[int],
        said("Head to show, counted from 0; by default all.", low=0, high=U32, flag="head"),
    ] = ()


class TextFeatures(msgspec.Struct, frozen=True):
    """The features of one text: of its tokens, or one vector."""

    vectors: Sequence[Row]
    tokens: Sequence[Token]
    num_tokens: int
    is_truncated: bool


class Features(Answered, frozen=True, kw_only=True):
    """The features of all texts, in their order."""

    num_tokens: int
    results: Sequence[TextFeatures]

    @property
    def num_values(self) -> int:
        """About how many numbers it has."""
        return sum(len(row.values) for each in self.results for row in each.vectors)


class Attention(Answered, frozen=True, kw_only=True):
    """The tokens that look, those that are looked at, and the weights between them."""

    num_tokens: int
    queries: Sequence[Token]
    keys: Sequence[Token]
    matrices: Sequence[AttentionMatrix]
