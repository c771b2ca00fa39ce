"""The entities of texts, from the labels of their tokens.

Labels are IOB tags: `B-person` begins an entity of that type, `I-person` continues one, `O` is
outside of all. An `I-` without a predecessor of its type begins an entity as well, as in conlleval.
A word has the probabilities of its first token unless a request names another aggregation.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from msgspec.structs import asdict

from service.calls import reading as records
from service.calls.reading import ClassifyTokens
from service.contract.tensors import Signature, TensorSpec
from service.serving.tasks.task import (
    BYTES,
    TEXT,
    Ask,
    Fields,
    GraphOutput,
    Method,
    Outputs,
    TextReply,
    TextTask,
    TextTaskModel,
    chosen,
    column,
    row_fields,
    softmax,
)
from service.text.tokenizer import EncodedText, Text

OUTSIDE = "O"
# The first two take every token for a word.
BY_TOKEN = ("none", "simple")
AGGREGATIONS = (*BY_TOKEN, "first", "average", "max")
DEFAULT_AGGREGATION = "first"


@dataclass(frozen=True, slots=True)
class Entity:
    """Characters [start, end) of a text; `score` is the mean over its words.

    A word's is the probability of its likeliest tag, such as `I-person`, as in transformers'
    pipeline: that of `B-person` is not added to it.
    """

    label: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class Words:
    """A text's words as its tokenizer has them: their tokens, and [start, end) in characters."""

    tokens: list[list[int]]
    spans: list[tuple[int, int]]


def words_of(
    word_ids: Sequence[int | None], offsets: Sequence[tuple[int, int]], text: str
) -> Words:
    """Put tokens together to words; a token of no word, or of no characters, is none's."""
    tokens: list[list[int]] = []
    spans: list[tuple[int, int]] = []
    known = None
    for token, (word, (start, end)) in enumerate(zip(word_ids, offsets, strict=True)):
        if word is None or start == end:
            continue
        if word == known:
            tokens[-1].append(token)
            spans[-1] = (spans[-1][0], end)
            continue
        known = word
        tokens.append([token])
        start += len(text[start:end]) - len(text[start:end].lstrip())  # the space before a word
        spans.append((start, end))
    return Words(tokens, spans)


def probabilities_of(
    tokens: np.ndarray, words: Words, aggregation: str = DEFAULT_AGGREGATION
) -> np.ndarray:
    """Float [words, labels], from float [tokens, labels]."""
    if aggregation == "average":
        rows = [tokens[members].mean(axis=0) for members in words.tokens]
    elif aggregation == "max":
        surest = tokens.max(axis=1)
        rows = [tokens[max(members, key=surest.__getitem__)] for members in words.tokens]
    else:
        rows = [tokens[members[0]] for members in words.tokens]
    return np.array(rows, np.float32).reshape(len(rows), tokens.shape[1])


def type_of(label: str) -> str:
    """Without what says where in an entity it stands; some networks have only types."""
    return label[2:] if label.startswith(("B-", "I-")) else label


def labelled_words(of_words: np.ndarray, labels: Sequence[str], words: Words) -> list[Entity]:
    """The words that are not outside, each by itself with its whole label."""
    best = of_words.argmax(axis=1).tolist()
    return [
        Entity(labels[label], start, end, float(of_words[place, label]))
        for place, (label, (start, end)) in enumerate(zip(best, words.spans, strict=True))
        if labels[label] != OUTSIDE
    ]


def entities_of(of_words: np.ndarray, labels: Sequence[str], words: Words) -> list[Entity]:
    """The entities of a text, in their order, from float [words, labels]."""
    types = [type_of(label) for label in labels]
    best = of_words.argmax(axis=1).tolist()
    entities: list[Entity] = []
    members: list[float] = []
    for place, (label, (start, end)) in enumerate(zip(best, words.spans, strict=True)):
        if labels[label] == OUTSIDE:
            members = []
            continue
        is_begun = bool(members) and entities[-1].label == types[label]
        goes_on = is_begun and not labels[label].startswith("B-")
        members = [*(members if goes_on else []), float(of_words[place, label])]
        first = entities.pop().start if goes_on else start
        entities.append(Entity(types[label], first, end, sum(members) / len(members)))
    return entities


def _entities_by_text(
    model: TextTaskModel,
    texts: Sequence[Text],
    reply: TextReply,
    aggregation: str = DEFAULT_AGGREGATION,
) -> list[list[records.Entity]]:
    """The entities of each text, in their order."""
    return [
        [_record(text, entity) for entity in _entities(model, text, row, logits, aggregation)]
        for text, row, logits in zip(texts, reply.rows, reply.per_text(), strict=True)
        if isinstance(text, str)  # the task takes no pairs
    ]


def _entities(
    model: TextTaskModel, text: str, row: EncodedText, logits: np.ndarray, aggregation: str
) -> list[Entity]:
    assert row.encoding is not None, "the task's rows are of tokens"
    word_ids = row.encoding.word_ids
    if aggregation in BY_TOKEN:
        word_ids = [None if word is None else token for token, word in enumerate(word_ids)]
    words = words_of(word_ids, row.encoding.offsets, text)
    of_words = probabilities_of(softmax(logits), words, aggregation)
    join = labelled_words if aggregation == "none" else entities_of
    return join(of_words, model.manifest.labels, words)


def _record(text: str, entity: Entity) -> records.Entity:
    inside = text[entity.start : entity.end]
    return records.Entity(entity.label, inside, entity.start, entity.end, entity.score)


def _ask(call: ClassifyTokens, model: TextTaskModel) -> Ask:
    texts = call.texts
    aggregation = chosen("aggregation", call.aggregation, AGGREGATIONS, DEFAULT_AGGREGATION)

    def answer(reply: TextReply) -> Fields:
        by_text = _entities_by_text(model, texts, reply, aggregation)
        pairs = zip(reply.rows, by_text, strict=True)
        return {"results": [records.TextEntities(each, **row_fields(row)) for row, each in pairs]}

    return Ask(texts, answer)


def _tensors(model: TextTaskModel, texts: Sequence[Text], reply: TextReply) -> Outputs:
    """`entities`: a JSON list for each text."""
    lists = [
        [{**asdict(entity), "score": round(entity.score, 6)} for entity in entities]
        for entities in _entities_by_text(model, texts, reply)
    ]
    return {"entities": column([json.dumps(each).encode() for each in lists], object)}


TOKEN_CLASSIFICATION = TextTask(
    name="token-classification",
    verb="classify tokens",
    outputs=(GraphOutput("logits", lambda manifest: (len(manifest.labels),), "token"),),
    signature=lambda _: Signature(TEXT, (TensorSpec("entities", BYTES, (1,)),)),  # JSON
    tensors=lambda model, _: partial(_tensors, model),
)
METHODS = (Method(TOKEN_CLASSIFICATION, ClassifyTokens, _ask),)
