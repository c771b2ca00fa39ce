"""Calls about the words of a text: masks, entities, and the answers that a context has."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from service.calls.answers import Answered
from service.calls.record import U32, Call, Texts, said
from service.calls.texts import CUT, LATER

Aggregation: TypeAlias = Literal["", "none", "simple", "first", "average", "max"] | int


class FillMask(Call, frozen=True):
    """Texts with masks, whose words are asked for."""

    texts: Annotated[
        Texts, said("Texts with masks.", counted=True, also={"huggingface": "inputs"})
    ] = ()
    truncate: Annotated[bool, said(CUT)] = False
    top_k: Annotated[
        int, said("Words for each mask, most likely first; 0 stands for 5.", low=0, high=U32)
    ] = 0
    candidates: Annotated[
        Texts,
        said(
            "Words to score, each a single token, in place of the likeliest.",
            flag="candidate",
            also={"huggingface": "targets"},
        ),
    ] = ()


class ClassifyTokens(Call, frozen=True):
    """Texts whose entities are asked for."""

    texts: Annotated[
        Texts, said("Texts to read.", counted=True, also={"huggingface": "inputs"})
    ] = ()
    truncate: Annotated[bool, said(CUT)] = False
    aggregation: Annotated[
        Aggregation,
        said(
            "How tokens make a word; none given is first.",
            also={"huggingface": "aggregation_strategy"},
        ),
    ] = ""
    background: Annotated[bool, said(LATER)] = False


class Answer(Call, frozen=True):
    """A question about a context."""

    question: Annotated[
        str,
        said(
            "Question to answer from the context.",
            argument=True,
            also={"huggingface": "inputs.question"},
        ),
    ] = ""
    context: Annotated[
        str, said("Text that contains the answer.", also={"huggingface": "inputs.context"})
    ] = ""
    top_k: Annotated[
        int, said("Largest number of answers, best first; 0 stands for 1.", low=0, high=U32)
    ] = 0
    max_answer_tokens: Annotated[
        int,
        said(
            "Longest answer in tokens; 0 means 30.",
            low=0,
            high=U32,
            also={"huggingface": "max_answer_len"},
        ),
    ] = 0
    must_answer: Annotated[
        bool, said("Answer even if it is more likely that the context has no answer.")
    ] = False


class Fill(msgspec.Struct, frozen=True):
    """A word that may stand at a mask."""

    token_id: int
    token: str
    score: float
    logprob: float


class FilledMask(msgspec.Struct, frozen=True):
    """The words for one mask, best first, and [start, end) of its characters."""

    start: int
    end: int
    fills: Sequence[Fill]


class FilledText(msgspec.Struct, frozen=True):
    """The masks of one text, in their order."""

    masks: Sequence[FilledMask]
    num_tokens: int
    is_truncated: bool


class FilledTexts(Answered, frozen=True, kw_only=True):
    """The masks of all texts, in their order."""

    num_tokens: int
    results: Sequence[FilledText]


class Entity(msgspec.Struct, frozen=True):
    """A labelled part of a text, [start, end) in characters."""

    label: str
    text: str
    start: int
    end: int
    score: float


class TextEntities(msgspec.Struct, frozen=True):
    """The entities of one text, in their order."""

    entities: Sequence[Entity]
    num_tokens: int
    is_truncated: bool


class Entities(Answered, frozen=True, kw_only=True):
    """The entities of all texts, in their order."""

    num_tokens: int
    results: Sequence[TextEntities]


class SpanAnswer(msgspec.Struct, frozen=True):
    """A part of the context, [start, end) in characters."""

    text: str
    start: int
    end: int
    score: float


class ContextWindow(msgspec.Struct, frozen=True):
    """A part of the context that was read at once, [start, end) in characters."""

    start: int = 0
    end: int = 0


class Answers(Answered, frozen=True, kw_only=True):
    """The answers to a question, best first; none where none is likelier."""

    num_tokens: int
    answers: Sequence[SpanAnswer]
    no_answer_score: float
    num_windows: int
    windows: Sequence[ContextWindow]
