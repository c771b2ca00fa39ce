"""Documents in the order of their relevance, in the shapes that clients of rerankers send.

`/rerank` is Cohere's and Jina's, or with `texts` that of text-embeddings-inference, and `/ranking`
that of genai-perf. A model that scores pairs gives its own score; an embedder the cosine of the two
vectors.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal
from uuid import uuid4

import msgspec

from service.calls.models import ModelFacts
from service.calls.record import Call
from service.calls.texts import PairScores, Ranking, Rerank, ScorePairs, Similarities, Similarity
from service.errors import InputTooLong
from service.http.numbers import Whole
from service.http.request import Reply, Request
from service.http.retrieval.scores import BASES, usage_of
from service.http.routes import Route
from service.http.shared.embedding_fields import prompt_for
from service.http.shared.fields import MAX_ID, check_count, is_cut
from service.http.shared.models import find_model, name_of
from service.http.shared.names import CUT, TRUNCATE, Names, names_of
from service.http.shared.paths import RERANK, SCORE_PAIRS, SIMILARITY
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import REFUSALS
from service.http.status import invalid

DOCUMENTS, QUERY = "documents", "query"  # as the typed API calls them
Values = dict[str, Any]


class Document(msgspec.Struct):
    """A document that is written as an object."""

    text: str


class RerankRequest(msgspec.Struct, kw_only=True):
    """The body of Cohere's and Jina's clients, or with `texts` that of TEI's."""

    REFUSED: ClassVar[Refusals] = REFUSALS["reranking"]

    query: str | Document
    model: str | None = None
    documents: list[str | Document] | None = None
    texts: list[str] | None = None
    top_n: Whole | None = None
    return_documents: bool | None = None
    return_text: bool | None = None
    raw_scores: bool | None = None
    use_activation: bool | None = None
    truncate: bool | None = None
    truncation_direction: str | None = None
    truncate_prompt_tokens: Whole | None = None
    max_tokens_per_doc: Whole | None = None
    max_chunks_per_doc: Whole | None = None
    rank_fields: list[str] | None = None

    @property
    def is_raw(self) -> bool | None:
        """Whether scores are logits; None where the model decides."""
        if self.raw_scores is not None:
            return self.raw_scores
        if self.use_activation is not None:
            return not self.use_activation
        return None if self.texts is None else False

    @property
    def is_truncated(self) -> bool:
        """Whether long documents are cut: TEI cuts them unless a request says otherwise.

        Raises `HttpError`.
        """
        is_truncated = self.texts is not None if self.truncate is None else self.truncate
        has_length = self.max_tokens_per_doc is not None
        return is_cut(self.truncate_prompt_tokens) or is_truncated or has_length


class RankingRequest(msgspec.Struct, kw_only=True):
    """The body of genai-perf and aiperf."""

    REFUSED: ClassVar[Refusals] = REFUSALS["ranking"]

    query: Document
    passages: list[Document]
    model: str | None = None
    truncate: Literal["NONE", "END"] = "NONE"


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Ranked texts, and the body's names for them and for their way out."""

    query: str
    documents: Sequence[str]
    field: str
    way_out: str
    is_truncated: bool = False
    max_document_tokens: Whole | None = None
    is_raw: bool | None = None
    can_cut_query: bool = False  # a pair that is too long is cut as one, as TEI does

    def named(
        self, call: type[Call], names: Mapping[str, str], single: Collection[str] = ()
    ) -> Names:
        """The names that errors of a call have in the body."""
        return names_of("", call, names, single=single, cut=self.way_out)


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Places of documents with their scores, best first."""

    model: str
    scores: list[tuple[int, float]]
    num_tokens: int


def reranking_routes() -> tuple[Route, ...]:
    routes = [Route("POST", "/v2/rerank", rerank, RERANK, (RerankRequest,))]
    for base in BASES:
        routes += [
            Route("POST", f"{base}/rerank", rerank, RERANK, (RerankRequest,)),
            Route("POST", f"{base}/ranking", rank, RERANK, (RankingRequest,)),
        ]
    return tuple(routes)


async def rerank(request: Request) -> Reply:
    asked = await request.json(RerankRequest)
    most = request.front.settings.max_texts
    ranking = await request.work(lambda: _ranking_of(asked, most))
    ranked = await _ranked(request, asked.model, ranking)
    texts = [{"text": text} for text in ranking.documents]
    if asked.texts is not None:
        shown = texts if asked.return_text else [{}] * len(texts)
        return Reply.json(
            [
                {"index": index, "score": score, **shown[index]}
                for index, score in ranked.scores[: asked.top_n or None]
            ]
        )
    has_text = asked.return_documents is not False
    results = [
        {
            "index": index,
            "relevance_score": score,
            **({"document": texts[index]} if has_text else {}),
        }
        for index, score in ranked.scores[: asked.top_n or None]
    ]
    return Reply.json(
        {
            "id": f"rerank-{uuid4().hex}",
            "model": ranked.model,
            "results": results,
            "usage": usage_of(ranked.num_tokens),
            "meta": {"tokens": {"input_tokens": ranked.num_tokens}},  # Cohere's usage
        }
    )


async def rank(request: Request) -> Reply:
    asked = await request.json(RankingRequest)
    texts = [passage.text for passage in asked.passages]
    check_count(len(texts), "passages", request.front.settings.max_texts)
    is_truncated, way_out = asked.truncate == "END", "set truncate to END"
    ranking = _Ranking(asked.query.text, texts, "passages", way_out, is_truncated, is_raw=True)
    ranked = await _ranked(request, asked.model, ranking)
    rankings = [{"index": index, "logit": score} for index, score in ranked.scores]
    usage = usage_of(ranked.num_tokens)
    return Reply.json({"model": ranked.model, "rankings": rankings, "usage": usage})


def _ranking_of(asked: RerankRequest, most: int) -> _Ranking:
    """The checked request. Raises `HttpError`."""
    field = DOCUMENTS
    given: Sequence[str | Document] | None = asked.documents
    if asked.texts is not None:
        if given is not None:
            raise invalid("texts stands in place of documents, expected one of them", "texts")
        field, given = "texts", asked.texts
    if given is None:
        raise invalid("documents is missing", DOCUMENTS)
    check_count(len(given), field, most)
    for name, least in (("top_n", 0), ("max_tokens_per_doc", 1)):  # 0, vLLM's default: all
        number = getattr(asked, name)
        if number is not None and number < least:
            raise invalid(f"{name} is {number}, expected {least} or more", name)
    if asked.max_chunks_per_doc is not None:
        raise unsupported(
            "max_chunks_per_doc", "a document is read once, max_tokens_per_doc cuts it"
        )
    if asked.rank_fields not in (None, ["text"]):
        raise unsupported("rank_fields", "a document is a text, or an object whose text is read")
    if (asked.truncation_direction or "right").lower() != "right":
        raise unsupported("truncation_direction", "documents are cut at their end")
    return _Ranking(
        _text_of(asked.query),
        [_text_of(each) for each in given],
        field,
        TRUNCATE if field == "texts" else CUT,
        asked.is_truncated,
        asked.max_tokens_per_doc,
        asked.is_raw,
        asked.texts is not None and asked.truncate is True and asked.max_tokens_per_doc is None,
    )


def _text_of(given: str | Document) -> str:
    return given if isinstance(given, str) else given.text


async def _ranked(request: Request, given: str | None, ranking: _Ranking) -> _Ranked:
    name = await name_of(request, given)
    model = await find_model(request, name)
    if model.task == "embedding":
        return await _ranked_by_vectors(request, model, ranking)
    if ranking.can_cut_query:
        return await _ranked_by_pairs(request, name, ranking)
    call = Rerank(
        model=name,
        query=ranking.query,
        documents=ranking.documents,
        truncate=ranking.is_truncated,
        max_document_tokens=min(ranking.max_document_tokens or 0, MAX_ID),
        raw_scores=ranking.is_raw,
    )
    request.named = ranking.named(Rerank, {DOCUMENTS: ranking.field})
    try:
        answer: Ranking = await request.ask(RERANK, call)
    except InputTooLong as error:
        if error.field == QUERY and ranking.field == "texts":
            error.remedy = "truncate"  # a pair that is too long may be cut as one
        raise
    scores = [(result.index, result.score) for result in answer.results]
    return _Ranked(name, scores, answer.num_tokens)


async def _ranked_by_pairs(request: Request, model: str, ranking: _Ranking) -> _Ranked:
    call = ScorePairs(
        model=model,
        texts=[ranking.query] * len(ranking.documents),
        text_pairs=ranking.documents,
        truncate=True,
        raw_scores=ranking.is_raw,
    )
    names = {"texts": QUERY, "text_pairs": ranking.field}
    request.named = ranking.named(ScorePairs, names, single=("texts",))
    answer: PairScores = await request.ask(SCORE_PAIRS, call)
    scores = [(index, result.score) for index, result in enumerate(answer.results)]
    scores.sort(key=lambda pair: -pair[1])
    return _Ranked(model, scores, answer.num_tokens)


async def _ranked_by_vectors(request: Request, model: ModelFacts, ranking: _Ranking) -> _Ranked:
    if ranking.max_document_tokens is not None and ranking.max_document_tokens < model.max_tokens:
        raise unsupported(
            "max_tokens_per_doc",
            f"an embedder cuts texts to its own length, {model.max_tokens} tokens",
        )
    call = Similarity(
        model=model.name,
        texts=[ranking.query],
        others=ranking.documents,
        truncate=ranking.is_truncated,
        measure="cosine",
        prompt_name=prompt_for(model, "search_query"),
        others_prompt_name=prompt_for(model, "search_document"),
    )
    names = {"texts": QUERY, "others": ranking.field}
    request.named = ranking.named(Similarity, names, single=("texts",))
    answer: Similarities = await request.ask(SIMILARITY, call)
    scores = list(enumerate(answer.rows[0].numbers))
    scores.sort(key=lambda pair: -pair[1])
    return _Ranked(model.name, scores, answer.num_tokens)
