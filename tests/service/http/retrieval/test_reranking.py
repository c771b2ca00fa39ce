"""Documents in order, as clients of Cohere, Jina, vLLM and TEI ask for it."""

from typing import Any

import pytest

from tests.fakes.every_task import call
from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, within_patience

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"max_texts": 4}
QUERY, DOCUMENTS = "win", ["lunch now", "prize", "sorry"]
MATCHED = {"model": "match", "query": QUERY}
LONG = " ".join(["prize"] * 20)


async def post(served: Served, path: str, **fields: Any) -> Answer:
    return await within_patience(ask(served, "POST", path, fields))


async def posted(served: Served, path: str, **fields: Any) -> Any:
    answer = await post(served, path, **fields)
    assert answer.status == 200, answer.body
    return answer.json


async def ranked(served: Served, **fields: Any) -> list[tuple[int, float]]:
    """What the typed API says of the same documents."""
    answer = await call(served, "Rerank", **{"query": QUERY, "documents": DOCUMENTS, **fields})
    return [(result.index, result.score) for result in answer.results]


@pytest.mark.parametrize(
    "path",
    ["/rerank", "/v1/rerank", "/v2/rerank", "/openai/v1/rerank", "/models/match/rerank"],
)
async def test_documents_come_best_first_with_their_texts(served: Served, path: str) -> None:
    expected = await ranked(served)
    answer = await posted(served, path, **MATCHED, documents=DOCUMENTS)
    assert answer["results"] == [
        {"index": index, "relevance_score": score, "document": {"text": DOCUMENTS[index]}}
        for index, score in expected
    ]
    assert answer["model"] == "match"
    assert answer["usage"] == {"prompt_tokens": 16, "total_tokens": 16}
    assert answer["meta"] == {"tokens": {"input_tokens": 16}}


async def test_texts_are_objects_too_and_fewer_come_back_on_request(served: Served) -> None:
    answer = await posted(
        served,
        "/rerank",
        model="match",
        query={"text": QUERY},
        documents=[{"text": text, "title": "b"} for text in DOCUMENTS],
        rank_fields=["text"],
        top_n=2,
        return_documents=False,
    )
    expected = (await ranked(served))[:2]
    assert answer["results"] == [
        {"index": index, "relevance_score": score} for index, score in expected
    ]
    every = await posted(served, "/rerank", **MATCHED, documents=DOCUMENTS, top_n=2**40)
    assert len(every["results"]) == len(DOCUMENTS)


async def test_texts_of_tei_are_answered_with_a_list(served: Served) -> None:
    expected = await ranked(served, raw_scores=False)
    asked = {**MATCHED, "texts": DOCUMENTS}
    bare = [{"index": index, "score": score} for index, score in expected]
    assert await posted(served, "/rerank", **asked) == bare
    found = await posted(served, "/rerank", **asked, return_text=True, raw_scores=True)
    assert found == [
        {"index": index, "score": score, "text": DOCUMENTS[index]}
        for index, score in await ranked(served, raw_scores=True)
    ]


@pytest.mark.parametrize(
    ("field", "is_raw"),
    [
        ({"raw_scores": True}, True),
        ({"raw_scores": False}, False),
        ({"use_activation": False}, True),
        ({"use_activation": True}, False),
        ({}, None),
    ],
)
async def test_scores_are_logits_on_request(
    served: Served, field: dict[str, bool], is_raw: bool | None
) -> None:
    answer = await posted(served, "/rerank", **MATCHED, documents=DOCUMENTS, **field)
    found = [(each["index"], each["relevance_score"]) for each in answer["results"]]
    assert found == await ranked(served, raw_scores=is_raw)


async def test_passages_of_a_ranking_have_logits(served: Served) -> None:
    asked = {
        "model": "match",
        "query": {"text": QUERY},
        "passages": [{"text": text} for text in DOCUMENTS],
    }
    found = await posted(served, "/v1/ranking", **asked)
    expected = await ranked(served, raw_scores=True)
    assert found["rankings"] == [{"index": index, "logit": logit} for index, logit in expected]
    asked["passages"] = [{"text": LONG}]
    error = (await post(served, "/v1/ranking", **asked)).json["error"]
    assert error["param"] == "passages"
    assert error["message"].startswith("passages[0] with its query has 24 tokens, ")
    assert error["message"].endswith(": shorten it, or set truncate to END")
    assert len((await posted(served, "/v1/ranking", **asked, truncate="END"))["rankings"]) == 1


async def test_an_embedder_ranks_by_the_similarity_that_the_typed_api_says(served: Served) -> None:
    similar = await call(served, "Similarity", texts=[QUERY], others=DOCUMENTS)
    expected = list(similar.rows[0].values)
    found = await posted(served, "/rerank", model="mini", query=QUERY, texts=DOCUMENTS)
    assert {each["index"]: each["score"] for each in found} == dict(enumerate(expected))
    assert [each["score"] for each in found] == sorted(expected, reverse=True)


LONG_TEXTS = {**MATCHED, "texts": ["b", LONG], "truncate": False}
LONG_DOCUMENTS = {**MATCHED, "documents": ["b", LONG]}
EMBEDDED = {"model": "mini", "query": "a", "documents": ["b", LONG]}
PROMPT_WAY, TEI_WAY = "set truncate_prompt_tokens to -1", "set truncate to true"


@pytest.mark.parametrize(
    ("asked", "text", "param", "way_out"),
    [
        (LONG_DOCUMENTS, "documents[1] with its query has 24", "documents", PROMPT_WAY),
        (LONG_TEXTS, "texts[1] with its query has 24", "texts", TEI_WAY),
        (EMBEDDED, "documents[1] has 22", "documents", PROMPT_WAY),
        (EMBEDDED | {"query": LONG}, "query has 22", "query", PROMPT_WAY),
    ],
)
async def test_a_long_document_is_refused_by_its_name_or_cut(
    served: Served, asked: dict[str, Any], text: str, param: str, way_out: str
) -> None:
    answer = await post(served, "/rerank", **asked)
    error = answer.json["error"]
    assert (answer.status, error["param"], error["code"]) == (
        400,
        param,
        "context_length_exceeded",
    )
    assert error["message"].startswith(f"{text} tokens, the model takes at most ")
    assert error["message"].endswith(f": shorten it, or {way_out}")
    for cut in ({"truncate_prompt_tokens": -1}, {"truncate": True}, {"max_tokens_per_doc": 4_096}):
        await posted(served, "/rerank", **asked | cut)


async def test_long_texts_of_tei_are_cut_unless_it_says_otherwise(served: Served) -> None:
    found = await posted(served, "/rerank", **MATCHED, texts=["b", LONG])
    assert sorted(each["index"] for each in found) == [0, 1]


async def test_a_query_is_never_cut(served: Served) -> None:
    asked = {"model": "match", "query": LONG, "documents": ["b"]}
    for cut in ({}, {"truncate": True}, {"max_tokens_per_doc": 1}):
        error = (await post(served, "/rerank", **asked, **cut)).json["error"]
        assert (error["param"], error["code"]) == ("query", "context_length_exceeded")
        assert error["message"] == (
            "query has 20 tokens, the model takes at most 16 and a document: shorten it"
        )


async def test_a_query_of_tei_is_cut_on_request_as_the_pair_is_elsewhere(served: Served) -> None:
    long = " ".join(["win"] * 20)
    asked = {"model": "match", "query": long, "texts": ["b", "prize"]}
    error = (await post(served, "/rerank", **asked)).json["error"]
    assert error["message"].endswith(": shorten it, or set truncate to true")
    pairs = {"model": "match", "queries": long, "documents": asked["texts"]}
    scored = await posted(served, "/score", **pairs, truncate_prompt_tokens=-1)
    scores = {each["index"]: each["score"] for each in scored["data"]}
    found = await posted(served, "/rerank", **asked, truncate=True)
    assert {each["index"]: each["score"] for each in found} == pytest.approx(scores)
    assert found == sorted(found, key=lambda each: -each["score"])
    assert await posted(served, "/rerank", **asked, truncate=True, top_n=1) == found[:1]
    assert await posted(served, "/rerank", **asked, truncate=True, top_n=0) == found


async def test_no_results_at_most_are_all_as_in_vllm(served: Served) -> None:
    for top_n in (None, 0, 0.0):
        answer = await posted(served, "/rerank", **MATCHED, documents=DOCUMENTS, top_n=top_n)
        assert len(answer["results"]) == len(DOCUMENTS)
    texts = await posted(served, "/rerank", **MATCHED, texts=DOCUMENTS, top_n=1)
    assert len(texts) == 1


async def test_documents_are_cut_to_a_number_of_tokens(served: Served) -> None:
    answer = await posted(served, "/v2/rerank", **LONG_DOCUMENTS, max_tokens_per_doc=3)
    expected = await ranked(served, documents=["b", "prize prize prize"])
    found = [(each["index"], each["relevance_score"]) for each in answer["results"]]
    assert found == expected
    assert answer["usage"]["prompt_tokens"] == 5 + 7


@pytest.mark.parametrize(
    ("fields", "text", "param"),
    [
        ({}, "documents is missing", "documents"),
        ({"documents": []}, "documents has 0 elements, expected 1 to 4", "documents"),
        ({"texts": ["a"] * 5}, "texts has 5 elements, expected 1 to 4 (--max-texts)", "texts"),
        ({"texts": ["a"], "documents": ["a"]}, "texts stands in place of documents, exp", "texts"),
        ({"documents": ["a"], "top_n": -1}, "top_n is -1, expected 0 or more", "top_n"),
        (
            {"documents": ["a"], "max_tokens_per_doc": 0},
            "max_tokens_per_doc is 0, expected 1 or more",
            "max_tokens_per_doc",
        ),
        (
            {"documents": ["a"], "max_tokens_per_doc": 3, "model": "mini"},
            "max_tokens_per_doc is not supported: an embedder cuts texts to its own length, 12",
            "max_tokens_per_doc",
        ),
        (
            {"documents": ["a"], "max_chunks_per_doc": 10},
            "max_chunks_per_doc is not supported: ",
            "max_chunks_per_doc",
        ),
        (
            {"documents": ["a"], "rank_fields": ["title"]},
            "rank_fields is not supported: ",
            "rank_fields",
        ),
        (
            {"texts": ["a"], "truncation_direction": "Left"},
            "truncation_direction is not supported: documents are cut at their end",
            "truncation_direction",
        ),
        (
            {"documents": ["a"], "truncate_prompt_tokens": 3},
            "truncate_prompt_tokens is not supported: -1 cuts texts to the model's length",
            "truncate_prompt_tokens",
        ),
        ({"query": None, "documents": ["a"]}, "query is null, expected ", "query"),
        ({"documents": ["a"], "model": "spam"}, "model 'spam' does text-classific", "model"),
    ],
)
async def test_what_cannot_be_ranked_is_refused_by_its_name(
    served: Served, fields: dict[str, Any], text: str, param: str
) -> None:
    answer = await post(served, "/rerank", **MATCHED | fields)
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith(text)
    assert answer.json["error"]["param"] == param
