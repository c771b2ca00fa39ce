"""Masks, entities and answers. Offsets are of Unicode code points, as in the typed API."""

from typing import cast

import msgspec

from service.calls.answers import single
from service.calls.reading import (
    Aggregation,
    Answer,
    Answers,
    ClassifyTokens,
    Entities,
    Entity,
    Fill,
    FilledMask,
    FilledTexts,
    FillMask,
)
from service.http.huggingface.fields import Target, Values
from service.http.numbers import Count, Whole
from service.http.request import Reply, Request
from service.http.shared.inputs import Inputs, refuse
from service.http.shared.names import names_of
from service.http.shared.paths import ANSWER, CLASSIFY_TOKENS, FILL_MASK
from service.http.status import invalid

OWN_WINDOWS = "a long context is read in the server's own windows"
UNREADABLE = {
    "doc_stride": OWN_WINDOWS,
    "max_seq_len": OWN_WINDOWS,
    "max_question_len": "a question is never cut",
}
AGGREGATIONS: tuple[Aggregation, ...] = "none", "simple", "first", "average", "max"
_SPACES = ("\u0120", "\u2581")  # how vocabularies spell the space before a word
_CONTINUES = "##"  # how they spell that there is none


class MaskParameters(msgspec.Struct):
    """Which fills an answer has."""

    targets: list[str] | None = None
    top_k: Count | None = None


class MaskRequest(msgspec.Struct):
    """The body of fill-mask."""

    inputs: msgspec.Raw
    parameters: MaskParameters | None = None


class TokenParameters(msgspec.Struct):
    """Which entities an answer has."""

    aggregation_strategy: str | None = None
    ignore_labels: list[str] | None = None
    stride: Whole | None = None


class TokenRequest(msgspec.Struct):
    """The body of token classification."""

    inputs: msgspec.Raw
    parameters: TokenParameters | None = None


class Question(msgspec.Struct):
    """A question, and the text that answers it."""

    question: str
    context: str


class AnswerParameters(msgspec.Struct):
    """Which answers there are."""

    top_k: Count | None = None
    max_answer_len: Count | None = None
    handle_impossible_answer: bool | None = None
    doc_stride: Whole | None = None
    max_seq_len: Whole | None = None
    max_question_len: Whole | None = None


class QuestionRequest(msgspec.Struct):
    """The body of question answering."""

    inputs: Question
    parameters: AnswerParameters | None = None


async def fill_masks(request: Request, target: Target) -> Reply:
    """The fills of a mask; of a text with several masks, those of each."""
    asked = await request.json(MaskRequest)
    parameters = asked.parameters or MaskParameters()
    inputs = await Inputs.of(request, asked.inputs)
    call = FillMask(
        model=target.name,
        texts=inputs.texts,
        top_k=0 if parameters.targets else parameters.top_k or 0,
        candidates=parameters.targets or (),
    )
    request.named = inputs.names(FillMask)
    answer: FilledTexts = await request.ask(FILL_MASK, call)
    filled = []
    for text, result in zip(inputs.texts, answer.results, strict=True):
        masks = [
            [_fill(text, mask, fill) for fill in list(mask.fills)[: parameters.top_k]]
            for mask in result.masks
        ]
        filled.append(masks[0] if len(masks) == 1 else masks)
    return Reply.json(inputs.shaped(filled))


def _fill(text: str, mask: FilledMask, fill: Fill) -> Values:
    before, word = text[: mask.start], fill.token
    if word.startswith(_SPACES):
        word = " " + word[1:]
    if word.startswith(_CONTINUES):
        sequence = before.rstrip() + word[len(_CONTINUES) :]
    else:
        sequence = before + (word.lstrip() if not before or before[-1].isspace() else word)
    return {
        "score": single(fill.score),
        "token": fill.token_id,
        "token_str": word,
        "sequence": sequence + text[mask.end :],
    }


async def classify_tokens(request: Request, target: Target) -> Reply:
    asked = await request.json(TokenRequest)
    parameters = asked.parameters or TokenParameters()
    inputs = await Inputs.of(request, asked.inputs)
    refuse(
        parameters,
        {
            "stride": "a text that is too long is refused",
        },
    )
    strategy = parameters.aggregation_strategy
    if strategy is not None and strategy not in AGGREGATIONS:
        expected = ", ".join(map(str, AGGREGATIONS))
        raise invalid(f"aggregation_strategy is '{strategy}', expected one of {expected}")
    ignored = parameters.ignore_labels or ()
    call = ClassifyTokens(
        model=target.name, texts=inputs.texts, aggregation=cast("Aggregation", strategy or "")
    )
    name = "entity" if strategy == "none" else "entity_group"
    request.named = inputs.names(ClassifyTokens)
    answer: Entities = await request.ask(CLASSIFY_TOKENS, call)
    entities = [
        [_entity(entity, name) for entity in result.entities if entity.label not in ignored]
        for result in answer.results
    ]
    return Reply.json(inputs.shaped(entities))


def _entity(entity: Entity, name: str) -> Values:
    return {
        name: entity.label,
        "score": single(entity.score),
        "word": entity.text,
        "start": entity.start,
        "end": entity.end,
    }


async def answer_question(request: Request, target: Target) -> Reply:
    """The best answer, or a list where several are asked for."""
    asked = await request.json(QuestionRequest)
    parameters = asked.parameters or AnswerParameters()
    refuse(parameters, UNREADABLE)
    call = Answer(
        model=target.name,
        question=asked.inputs.question,
        context=asked.inputs.context,
        top_k=parameters.top_k or 1,
        max_answer_tokens=parameters.max_answer_len or 0,
        must_answer=not parameters.handle_impossible_answer,
    )
    request.named = names_of("huggingface", Answer)
    answer: Answers = await request.ask(ANSWER, call)
    answers = [
        {"answer": each.text, "score": single(each.score), "start": each.start, "end": each.end}
        for each in answer.answers
    ] or [{"answer": "", "score": single(answer.no_answer_score), "start": 0, "end": 0}]
    return Reply.json(answers if (parameters.top_k or 1) > 1 else answers[0])
