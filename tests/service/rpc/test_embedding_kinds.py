"""Sparse weights and token vectors beside dense vectors, over the wire: `three` has all of them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attendant.v1 import text_pb2 as pb
from grpc import StatusCode

from service.serving.tasks import embedding_kinds
from tests.fakes.command_line import run
from tests.fakes.retrieval import (
    NUM_TERMS,
    terms_manifest,
    three_manifest,
    three_session,
    weight,
)
from tests.fakes.serving import Served, inference, refusal, serving, write_models
from tests.fakes.sessions import (
    FIRST_ID,
    LAST_ID,
    FakeSessions,
    text_session,
    text_values,
    token_ids,
    write_model,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXTS = ["win the prize prize", "lunch now"]
DENSE, SPARSE, VECTORS = (
    pb.EMBEDDING_KIND_DENSE,
    pb.EMBEDDING_KIND_SPARSE,
    pb.EMBEDDING_KIND_TOKEN_VECTORS,
)


@asynccontextmanager
async def three_ways(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_models(repository)
    write_model(repository, "three", three_manifest())
    write_model(repository, "terms", terms_manifest())
    sessions = FakeSessions(
        spam=lambda: text_session("logits", 3),
        mini=lambda: text_session("embedding", 4),
        three=three_session,
        terms=lambda: text_session("term_weights", NUM_TERMS),
    )
    async with serving(repository, sessions, **settings) as running:
        yield running


SERVE = three_ways


def expected_sparse(text: str) -> dict[int, float]:
    weights: dict[int, float] = {}
    for place, token in enumerate(token_ids(text)):
        if weight(token, place) and token not in (FIRST_ID, LAST_ID):
            weights[token] = max(weights.get(token, 0.0), weight(token, place))
    return dict(sorted(weights.items()))


def sparse_of(result: pb.Embedding) -> dict[int, float]:
    return dict(zip(result.sparse.token_ids, result.sparse.weights, strict=True))


async def embedded(served: Served, model: str = "three", **fields: Any) -> list[pb.Embedding]:
    request = pb.EmbedRequest(model=model, **{"texts": TEXTS} | fields)
    return list((await served.text.Embed(request)).results)


async def test_a_request_that_names_no_kind_has_the_dense_vector_alone(served: Served) -> None:
    for text, result in zip(TEXTS, await embedded(served), strict=True):
        assert list(result.values) == text_values(token_ids(text), 4).tolist()
        assert not result.HasField("sparse")
        assert not result.token_vectors


async def test_all_kinds_come_from_one_run(served: Served) -> None:
    results = await embedded(served, kinds=[DENSE, SPARSE, VECTORS], with_pieces=True)
    for text, result in zip(TEXTS, results, strict=True):
        ids = token_ids(text)
        assert list(result.values) == text_values(ids, 4).tolist()
        assert sparse_of(result) == pytest.approx(expected_sparse(text))
        assert list(result.sparse.token_ids) == sorted(result.sparse.token_ids)
        vectors = [list(vector.values) for vector in result.token_vectors]
        assert vectors == [[token, -token] for token in ids[1:]], "of all tokens but the first"
        assert set(result.sparse.pieces) <= set(text.split())
        assert len(result.sparse.pieces) == len(result.sparse.weights)


async def test_a_kind_alone_has_no_dense_vector(served: Served) -> None:
    (result,) = await embedded(served, texts=TEXTS[:1], kinds=[SPARSE])
    assert not result.values
    assert sparse_of(result) == pytest.approx(expected_sparse(TEXTS[0]))


async def test_the_heaviest_weights_are_kept_in_the_order_of_their_tokens(served: Served) -> None:
    (result,) = await embedded(served, texts=TEXTS[:1], kinds=[SPARSE], top_k=2)
    heaviest = sorted(expected_sparse(TEXTS[0]).items(), key=lambda pair: -pair[1])[:2]
    assert sparse_of(result) == pytest.approx(dict(heaviest))
    assert list(result.sparse.token_ids) == sorted(result.sparse.token_ids)


async def test_a_model_of_terms_answers_the_weights_above_0(served: Served) -> None:
    for kinds in ([], [SPARSE]):
        for text, result in zip(TEXTS, await embedded(served, "terms", kinds=kinds), strict=True):
            values = text_values(token_ids(text), NUM_TERMS).tolist()
            expected = {index: value for index, value in enumerate(values) if value > 0}
            assert sparse_of(result) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"model": "mini", "kinds": [SPARSE]},
            "kinds has sparse, but the model answers dense only",
        ),
        (
            {"model": "terms", "kinds": [DENSE]},
            "kinds has dense, but the model answers sparse only",
        ),
        ({"kinds": [SPARSE], "dimensions": 4}, "dimensions is for dense, which kinds lacks"),
        ({"kinds": [7]}, "kinds has 7, expected 0 to 3"),
        ({"kinds": [SPARSE], "dimensions": 5}, "dimensions is for dense, which kinds lacks"),
        ({"kinds": [SPARSE], "encodings": [2]}, "encodings is for dense, which kinds lacks"),
        ({"top_k": 3}, "top_k is 3, but it is for sparse, which kinds lacks"),
        ({"with_pieces": True}, "with_pieces is True, but it is for sparse, which kinds lacks"),
    ],
)
async def test_a_kind_that_a_model_lacks_is_refused(
    served: Served, fields: dict[str, Any], text: str
) -> None:
    found = await refusal(embedded(served, **fields))
    assert found == (StatusCode.INVALID_ARGUMENT, text)


async def test_vectors_that_are_too_many_for_an_answer_are_refused_before_a_run(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_kinds, "MAX_VECTOR_VALUES", 8)
    found = await refusal(embedded(served, kinds=[VECTORS]))
    assert found == (
        StatusCode.INVALID_ARGUMENT,
        "the texts have 10 tokens in all, but an answer with token vectors may have 4: send fewer "
        "texts in a request",
    )


async def test_models_list_the_kinds_that_they_have(served: Served) -> None:
    models = {
        each.name: each for each in (await served.text.ListModels(pb.ListModelsRequest())).models
    }
    kinds = {name: list(model.embedding_kinds) for name, model in models.items()}
    assert kinds["three"] == ["dense", "sparse", "token_vectors"]
    assert kinds["terms"] == ["sparse"]
    assert kinds["mini"] == ["dense"]
    assert kinds["spam"] == []
    assert (models["three"].sparse_size, models["three"].token_vector_size) == (NUM_TERMS, 2)


async def test_the_tensor_of_a_model_of_terms_has_all_weights(served: Served) -> None:
    reply = await served.inference.ModelInfer(inference("terms", text=TEXTS))
    found = np.frombuffer(reply.raw_output_contents[0], "<f4").reshape(2, NUM_TERMS)
    assert found.tolist() == [text_values(token_ids(text), NUM_TERMS).tolist() for text in TEXTS]


async def test_the_command_shows_pieces_and_weights(served: Served) -> None:
    result = await run(served, "embed", "three", TEXTS[0], "--kind", "sparse")
    assert result.exit_code == 0, result.stderr
    for token in ("prize", "win"):
        assert token in result.stdout
    assert "weight" in result.stdout


async def test_the_command_shows_the_same_of_a_model_that_has_nothing_else(served: Served) -> None:
    named = await run(served, "embed", "terms", TEXTS[0], "--kind", "sparse", "--json")
    found = await run(served, "embed", "terms", TEXTS[0], "--json")
    assert found.exit_code == named.exit_code == 0, found.stderr
    pieces = [json.loads(each.stdout)["results"][0]["sparse"]["pieces"] for each in (named, found)]
    assert pieces[0] == pieces[1] != []


async def test_a_prompt_stands_in_front_of_a_text_with_any_kind(served: Served) -> None:
    (result,) = await embedded(served, texts=["now"], prompt="win the ", kinds=[SPARSE, VECTORS])
    assert sparse_of(result) == pytest.approx(expected_sparse("win the now"))
    assert len(result.token_vectors) == len(token_ids("win the now")) - 1
