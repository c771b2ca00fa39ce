"""The entities of texts, from the labels of their tokens.

Labels are IOB tags: `B-person` begins an entity of that type, `I-person` continues one, `O` is
outside of all. A word has the label of its first token. An `I-` without a predecessor of its type
begins an entity as well, as in conlleval.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from service.contract.tensors import Signature, TensorSpec
from service.runtime.tokenizer import EncodedText, Text
from service.serving.tasks.task import (
    BYTES,
    TEXT,
    Ask,
    Fields,
    Method,
    Outputs,
    TextReply,
    TextTask,
    TextTaskModel,
    column,
    row_fields,
    softmax,
)

OUTSIDE = "O"


@dataclass(frozen=True, slots=True)
class Entity:
    """Characters [start, end) of a text; `score` is the mean over its words.

    A word's is the probability that it is of the label, whether it begins an entity or goes on.
    """

    label: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class Words:
    """A text's words as its tokenizer has them: first tokens, and [start, end) in characters."""

    first_tokens: list[int]
    spans: list[tuple[int, int]]


def words_of(
    word_ids: Sequence[int | None], offsets: Sequence[tuple[int, int]], text: str
) -> Words:
    """Put tokens together to words; a token of no word, or of no characters, is none's."""
    first_tokens: list[int] = []
    spans: list[tuple[int, int]] = []
    known = None
    for token, (word, (start, end)) in enumerate(zip(word_ids, offsets, strict=True)):
        if word is None or start == end:
            continue
        if word == known:
            spans[-1] = (spans[-1][0], end)
            continue
        known = word
        first_tokens.append(token)
        start += len(text[start:end]) - len(text[start:end].lstrip())  # the space before a word
        spans.append((start, end))
    return Words(first_tokens, spans)


def type_of(label: str) -> str:
    """Without what says where in an entity it stands; some networks have only types."""
    return label[2:] if label.startswith(("B-", "I-")) else label


def entities_of(probabilities: np.ndarray, labels: Sequence[str], words: Words) -> list[Entity]:
    """The entities of a text, in their order, from float [tokens, labels]."""
    types = [type_of(label) for label in labels]
    is_of_type = np.array([[one == other for other in types] for one in types], np.float32)
    of_words = probabilities[words.first_tokens]
    best = of_words.argmax(axis=1).tolist()
    scores = of_words @ is_of_type
    entities: list[Entity] = []
    members: list[float] = []
    for place, (label, (start, end)) in enumerate(zip(best, words.spans, strict=True)):
        if labels[label] == OUTSIDE:
            members = []
            continue
        is_begun = bool(members) and entities[-1].label == types[label]
        goes_on = is_begun and not labels[label].startswith("B-")
        members = [*(members if goes_on else []), float(scores[place, label])]
        first = entities.pop().start if goes_on else start
        entities.append(Entity(types[label], first, end, sum(members) / len(members)))
    return entities


def _entities_by_text(
    model: TextTaskModel, texts: Sequence[Text], reply: TextReply
) -> list[list[Fields]]:
    """The entities of each text, in their order."""
    return [
        [_fields(text, entity) for entity in _entities(model, text, row, logits)]
        for text, row, logits in zip(texts, reply.rows, reply.per_text(), strict=True)
        if isinstance(text, str)  # the task takes no pairs
    ]


def _entities(
    model: TextTaskModel, text: str, row: EncodedText, logits: np.ndarray
) -> list[Entity]:
    assert row.encoding is not None, "the task's rows are of tokens"
    words = words_of(row.encoding.word_ids, row.encoding.offsets, text)
    return entities_of(softmax(logits), model.manifest.labels, words)


def _fields(text: str, entity: Entity) -> Fields:
    return {
        "label": entity.label,
        "text": text[entity.start : entity.end],
        "start": entity.start,
        "end": entity.end,
        "score": entity.score,
    }


def _ask(fields: Fields, model: TextTaskModel) -> Ask:
    texts = fields["texts"]

    def answer(reply: TextReply) -> Fields:
        pairs = zip(reply.rows, _entities_by_text(model, texts, reply), strict=True)
        return {"results": [{"entities": each, **row_fields(row)} for row, each in pairs]}

    return Ask(texts, answer)


def _tensors(model: TextTaskModel, texts: Sequence[Text], reply: TextReply) -> Outputs:
    """`entities`: a JSON list for each text."""
    lists = [
        [{**entity, "score": round(entity["score"], 6)} for entity in entities]
        for entities in _entities_by_text(model, texts, reply)
    ]
    return {"entities": column([json.dumps(each).encode() for each in lists], object)}


TOKEN_CLASSIFICATION = TextTask(
    name="token-classification",
    verb="classify tokens",
    output="logits",
    dims=lambda manifest: (len(manifest.labels),),
    signature=lambda _: Signature(TEXT, (TensorSpec("entities", BYTES, (1,)),)),  # JSON
    rows="token",
    tensors=lambda model, _: partial(_tensors, model),
)
METHODS = (Method("ClassifyTokens", TOKEN_CLASSIFICATION, _ask),)
