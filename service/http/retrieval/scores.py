"""Scores of pairs, and classes, as vLLM has them.

A model that scores pairs gives its own score; an embedder the cosine of the two vectors.
"""

import time
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

import msgspec

from service.calls.record import Call
from service.calls.texts import (
    Classifications,
    Classify,
    PairScores,
    ScorePairs,
    Similarities,
    Similarity,
)
from service.http.numbers import Whole
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.fields import is_cut, texts_of
from service.http.shared.models import find_model, name_of
from service.http.shared.names import CUT, Names, names_of
from service.http.shared.paths import CLASSIFY, SCORE_PAIRS, SIMILARITY
from service.http.shared.peer_fields import Refusals
from service.http.shared.peer_tables import REFUSALS
from service.http.status import invalid

BASES = ("", "/v1", "/openai/v1", "/models/{model}", "/models/{model}/v1")
_PAIRS = (
    ("queries", "documents"),
    ("queries", "items"),
    ("text_1", "text_2"),
    ("data_1", "data_2"),
)
_NULL = msgspec.Raw(b"null")
Values = dict[str, Any]


class ScoreRequest(msgspec.Struct, kw_only=True):
    """The body, as vLLM has it: two of its fields, one text with several or as many as these."""

    REFUSED: ClassVar[Refusals] = REFUSALS["scores"]

    model: str | None = None
    queries: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    documents: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    items: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # vLLM's other name of documents
    text_1: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    text_2: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_1: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_2: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    truncate_prompt_tokens: Whole | None = None
    use_activation: bool | None = None

    def of(self, name: str) -> msgspec.Raw:
        """A field of texts, null where it is absent."""
        value: msgspec.Raw | msgspec.UnsetType = getattr(self, name)
        return _NULL if isinstance(value, msgspec.UnsetType) else value


class ClassifyRequest(msgspec.Struct, kw_only=True):
    """The body, as vLLM has it."""

    REFUSED: ClassVar[Refusals] = REFUSALS["classes"]

    input: msgspec.Raw
    model: str | None = None
    truncate_prompt_tokens: Whole | None = None
    use_activation: bool | None = None


def score_routes() -> tuple[Route, ...]:
    routes = []
    for base in BASES:
        routes += [
            Route("POST", f"{base}/score", score, SCORE_PAIRS, (ScoreRequest,)),
            Route("POST", f"{base}/classify", classify, CLASSIFY, (ClassifyRequest,)),
        ]
    return tuple(routes)


async def score(request: Request) -> Reply:
    asked = await request.json(ScoreRequest)
    most = request.front.settings.max_texts
    names = _names_of(asked)
    firsts, seconds = await request.work(
        lambda: [texts_of(asked.of(name), name, most) for name in names]
    )
    if len(firsts) not in (1, len(seconds)):
        raise invalid(
            f"{names[0]} has {len(firsts)} texts, expected 1 or as many as {names[1]}, "
            f"which has {len(seconds)}",
            names[0],
        )
    if len(firsts) < len(seconds):
        firsts *= len(seconds)
    is_raw = None if asked.use_activation is None else not asked.use_activation
    pairs = _Pairs(firsts, seconds, names, is_cut(asked.truncate_prompt_tokens), is_raw)
    name, scores, num_tokens = await _scores(request, asked.model, pairs)
    data = [
        {"index": index, "object": "score", "score": value} for index, value in enumerate(scores)
    ]
    return Reply.json({**_head("score", name), "data": data, "usage": usage_of(num_tokens)})


def _names_of(asked: ScoreRequest) -> tuple[str, str]:
    """The two fields that have the texts. Raises `HttpError`."""
    known = dict.fromkeys(name for pair in _PAIRS for name in pair)
    given = [name for name in known if asked.of(name) != _NULL]
    firsts = [name for name in given if name in dict(_PAIRS)]
    if len(firsts) != 1:
        expected = " or ".join(f"{one} and {other}" for one, other in _PAIRS)
        raise invalid(f"the request has {len(firsts)} pairs of fields, expected {expected}")
    (first,) = firsts
    seconds = [second for one, second in _PAIRS if one == first]
    names = (first, next((name for name in seconds if name in given), seconds[0]))
    if names[1] not in given:
        raise invalid(f"{names[1]} is missing", names[1])
    others = [name for name in given if name not in names]
    if others:
        raise invalid(f"{others[0]} is set beside {names[1]}, expected one of them", others[0])
    return names


async def classify(request: Request) -> Reply:
    asked = await request.json(ClassifyRequest)
    most = request.front.settings.max_texts
    texts = await request.work(lambda: texts_of(asked.input, "input", most))
    name = await name_of(request, asked.model)
    is_raw = asked.use_activation is False
    call = Classify(
        model=name,
        texts=texts,
        all_scores=True,
        truncate=is_cut(asked.truncate_prompt_tokens),
        score_function="identity" if is_raw else "",
    )
    request.named = names_of("openai", Classify, cut=CUT)
    answer: Classifications = await request.ask(CLASSIFY, call)
    labels = (await find_model(request, name)).labels
    data = []
    for index, result in enumerate(answer.results):
        found = {entry.label: entry.score for entry in result.labels}
        probs = [found[label] for label in labels]
        best = result.labels[0].label
        data.append({"index": index, "label": best, "probs": probs, "num_classes": len(probs)})
    return Reply.json(
        {**_head("classify", name), "data": data, "usage": usage_of(answer.num_tokens)}
    )


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Texts to be scored with each other, and the names of the body's fields they come from."""

    firsts: list[str]
    seconds: list[str]
    names: tuple[str, str]
    is_truncated: bool
    is_raw: bool | None  # whether scores are logits; None where the model decides

    @property
    def has_one_first(self) -> bool:
        return len(set(self.firsts)) == 1

    def named(self, call: type[Call], field: str) -> Names:
        """The names that errors have in a call whose field has the second texts."""
        names = dict(zip(("texts", field), self.names, strict=True))
        return names_of("", call, names, single=("texts",) if self.has_one_first else (), cut=CUT)


async def _scores(
    request: Request, given: str | None, pairs: _Pairs
) -> tuple[str, list[float], int]:
    """The model's name, the score of each pair, and the tokens that were read."""
    name = await name_of(request, given)
    cut = pairs.is_truncated
    if (await find_model(request, name)).task != "embedding":
        call = ScorePairs(
            model=name,
            texts=pairs.firsts,
            text_pairs=pairs.seconds,
            truncate=cut,
            raw_scores=pairs.is_raw,
        )
        request.named = pairs.named(ScorePairs, "text_pairs")
        scored: PairScores = await request.ask(SCORE_PAIRS, call)
        return name, [result.score for result in scored.results], scored.num_tokens
    is_one = pairs.has_one_first
    firsts = pairs.firsts[:1] if is_one else pairs.firsts
    compared = Similarity(
        model=name,
        texts=firsts,
        others=pairs.seconds,
        truncate=cut,
        measure="cosine",
    )
    request.named = pairs.named(Similarity, "others")
    answer: Similarities = await request.ask(SIMILARITY, compared)
    if is_one:
        return name, answer.rows[0].numbers, answer.num_tokens
    return name, [float(row.values[i]) for i, row in enumerate(answer.rows)], answer.num_tokens


def _head(kind: str, model: str) -> Values:
    created = int(time.time())
    return {"id": f"{kind}-{uuid4().hex}", "object": "list", "created": created, "model": model}


def usage_of(num_tokens: int) -> Values:
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
