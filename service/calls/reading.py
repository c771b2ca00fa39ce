"""Calls about the words of a text: masks, entities, and the answers that a context has."""

from typing import Annotated, Literal, TypeAlias

from service.calls.record import U32, Call, Texts, said
from service.calls.texts import CUT, LATER

Aggregation: TypeAlias = Literal["", "none", "simple", "first", "average", "max"] | int


class FillMask(Call, frozen=True):
    """Texts with masks, whose words are asked for."""

    texts: Annotated[Texts, said("Texts with masks.", counted=True)] = ()
    truncate: Annotated[bool, said(CUT)] = False
    top_k: Annotated[int, said("Words for each mask; 0 stands for 5.", low=0, high=U32)] = 0
    candidates: Annotated[Texts, said("Words to choose among; not together with top_k.")] = ()


class ClassifyTokens(Call, frozen=True):
    """Texts whose entities are asked for."""

    texts: Annotated[Texts, said("Texts to read.", counted=True)] = ()
    truncate: Annotated[bool, said(CUT)] = False
    aggregation: Annotated[Aggregation, said("How tokens make a word; none given is first.")] = ""
    background: Annotated[bool, said(LATER)] = False


class Answer(Call, frozen=True):
    """A question about a context."""

    question: Annotated[str, said("What is asked.")] = ""
    context: Annotated[str, said("The text that has the answer.")] = ""
    top_k: Annotated[int, said("Answers, best first; 0 stands for 1.", low=0, high=U32)] = 0
    max_answer_tokens: Annotated[int, said("0 stands for 30.", low=0, high=U32)] = 0
    must_answer: Annotated[bool, said("Answer also where none is likelier.")] = False
