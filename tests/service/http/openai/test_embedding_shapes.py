"""Prompts, widths and encodings as OpenAI's, Cohere's and Hugging Face's clients ask for them."""

import base64
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from service.contract.embedder_use import EmbedderUse
from tests.fakes.http import ask
from tests.fakes.serving import Served, default_sessions, serving, within_patience
from tests.fakes.sessions import (
    embedder_manifest,
    text_session,
    text_values,
    token_ids,
    write_model,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
OPENAI = "/v1/embeddings"
SIZE, TEXTS = 12, ["win a prize", "lunch"]
RANGES = np.stack([np.zeros(SIZE), np.full(SIZE, 4.0)]).astype("<f4")
USE = EmbedderUse(
    prompts={"query": "win free ", "passage": "the "},
    dimensions=(8,),
    is_normalized=True,
    ranges={str(SIZE): b64encode(RANGES.tobytes()).decode()},
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """`wide` has prompts, shorter vectors and ranges of 12 values; `mini` has none of them."""
    repository = tmp_path_factory.mktemp("models")
    write_model(repository, "wide", embedder_manifest(embedding_size=SIZE, embedder=USE))
    write_model(repository, "mini", embedder_manifest())
    sessions = default_sessions()
    sessions._makers["wide"] = lambda: text_session("embedding", SIZE)
    async with serving(repository, sessions, http_port=0) as running:
        yield running


async def post(served: Served, path: str, **fields: Any) -> Any:
    answer = await within_patience(ask(served, "POST", path, fields))
    assert answer.status == 200, answer.body
    return answer.json


def vectors_of(prompt: str, *texts: str) -> np.ndarray:
    return np.stack([text_values(token_ids(f"{prompt}{text}"), SIZE) for text in texts])


def unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, ""),
        ({"prompt_name": "query"}, "win free "),
        ({"input_type": "query"}, "win free "),
        ({"input_type": "search_document"}, "the "),
        ({"input_type": "clustering"}, ""),
    ],
)
async def test_openais_embeddings_have_the_named_prompt(
    served: Served, fields: dict[str, Any], prompt: str
) -> None:
    answer = await post(served, "/v1/embeddings", model="wide", input=TEXTS, **fields)
    found = [each["embedding"] for each in answer["data"]]
    np.testing.assert_array_equal(np.array(found, np.float32), vectors_of(prompt, *TEXTS))


async def test_openais_embeddings_are_cut_and_encoded(served: Served) -> None:
    fields = {"model": "wide", "input": TEXTS, "dimensions": 8}
    answer = await post(served, "/v1/embeddings", **fields)
    vectors = unit(vectors_of("", *TEXTS)[:, :8])
    found = [each["embedding"] for each in answer["data"]]
    np.testing.assert_allclose(found, vectors, rtol=1e-6)
    answer = await post(served, "/v1/embeddings", **fields, embedding_type="ubinary")
    bits = np.packbits(vectors > 0, axis=-1).tolist()
    assert [each["embedding"] for each in answer["data"]] == bits
    answer = await post(
        served, "/v1/embeddings", **fields, embedding_type="ubinary", encoding_format="base64"
    )
    assert [list(base64.b64decode(each["embedding"])) for each in answer["data"]] == bits


async def test_cohere_has_every_type_of_one_request(served: Served) -> None:
    """`search_document` is the prompt that this publisher calls passage."""
    kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    fields = {"texts": TEXTS, "input_type": "search_document", "embedding_types": kinds}
    answer = await post(served, "/v2/embed", model="wide", **fields)
    vectors = vectors_of("the ", *TEXTS)
    found = answer["embeddings"]
    np.testing.assert_array_equal(np.array(found["float"], np.float32), vectors)
    steps = np.clip(np.floor((vectors - RANGES[0]) / ((RANGES[1] - RANGES[0]) / 255)), 0, 255)
    assert found["uint8"] == steps.astype(int).tolist()
    assert found["int8"] == (steps.astype(int) - 128).tolist()
    bits = np.packbits(vectors > 0, axis=-1).astype(int)
    assert (found["ubinary"], found["binary"]) == (bits.tolist(), (bits - 128).tolist())
    raw = [np.frombuffer(base64.b64decode(each), "<f4") for each in found["base64"]]
    np.testing.assert_array_equal(raw, vectors)
    num_tokens = sum(len(token_ids(f"the {text}")) for text in TEXTS)
    assert answer["meta"]["billed_units"] == {"input_tokens": num_tokens}
    assert (answer["texts"], answer["response_type"]) == (TEXTS, "embeddings_by_type")


async def test_coheres_first_version_is_a_list_of_vectors(served: Served) -> None:
    answer = await post(served, "/v1/embed", model="mini", texts=["prize " * 20])
    assert answer["response_type"] == "embeddings_floats"
    assert np.shape(answer["embeddings"]) == (1, 4), "cut at its end by default"


@pytest.mark.parametrize("path", ["/embed", "/models/wide/embed"])
async def test_teis_embed_is_a_list_of_vectors_of_length_1(served: Served, path: str) -> None:
    answer = await post(served, path, model="wide", inputs=TEXTS[0], prompt_name="query")
    np.testing.assert_allclose(answer, unit(vectors_of("win free ", TEXTS[0])), rtol=1e-6)
    answer = await post(served, path, model="wide", inputs=TEXTS, dimensions=8)
    np.testing.assert_allclose(answer, unit(vectors_of("", *TEXTS)[:, :8]), rtol=1e-6)


async def test_teis_vectors_are_not_normalised_on_request(served: Served) -> None:
    answer = await post(served, "/embed", model="mini", inputs=TEXTS, normalize=False)
    np.testing.assert_array_equal(np.array(answer, np.float32), vectors_of("", *TEXTS)[:, :4])


async def test_teis_similarity_has_the_prompt_on_both_sides(served: Served) -> None:
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    fields = {"inputs": inputs, "parameters": {"prompt_name": "query"}}
    answer = await post(served, "/similarity", model="wide", **fields)
    units = unit(vectors_of("win free ", *TEXTS))
    np.testing.assert_allclose(answer, units[0] @ units.T, rtol=1e-6)


async def test_feature_extraction_has_the_prompt_and_the_width(served: Served) -> None:
    fields = {"inputs": TEXTS, "prompt_name": "passage", "dimensions": 8}
    answer = await post(served, "/models/wide", **fields)
    np.testing.assert_allclose(answer, unit(vectors_of("the ", *TEXTS)[:, :8]), rtol=1e-6)


async def test_an_embedder_ranks_a_query_with_its_prompt_and_documents_with_theirs(
    served: Served,
) -> None:
    answer = await post(served, "/rerank", model="wide", query="now", documents=TEXTS)
    query, documents = unit(vectors_of("win free ", "now")), unit(vectors_of("the ", *TEXTS))
    scores = {each["index"]: each["relevance_score"] for each in answer["results"]}
    np.testing.assert_allclose([scores[0], scores[1]], (query @ documents.T)[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        ("/v1/embeddings", {"dimensions": 0}, "dimensions is 0, expected 1 or more"),
        (
            "/v1/embeddings",
            {"dimensions": 2**32},
            "dimensions is 4294967296, expected at most 42949",
        ),
        ("/v1/embeddings", {"dimensions": 5}, "dimensions is 5, expected one of 12, 8"),
        ("/v1/embeddings", {"embedding_type": "int4"}, "embedding_type is 'int4', expected one of"),
        ("/v1/embeddings", {"input_type": "poem"}, "input_type is 'poem', expected one of search_"),
        (
            "/v1/embeddings",
            {"input_type": "query", "prompt_name": "query"},
            "input_type stands in place of prompt_name, expected one of them",
        ),
        (
            "/v1/embeddings",
            {"dimensions": 8, "embedding_type": "int8"},
            "embedding_type has int8, but the model's manifest has no ranges",
        ),
        ("/v2/embed", {"output_dimension": 5}, "output_dimension is 5, expected one of 12, 8"),
        ("/v2/embed", {"texts": []}, "texts has 0 elements, expected 1 to 2048"),
        ("/v2/embed", {"truncate": "none"}, "truncate is 'none', expected one of NONE, START, END"),
        ("/v2/embed", {"truncate": "START"}, "truncate is not supported: a text that is cut"),
        (
            "/v2/embed",
            {"texts": ["prize " * 20], "truncate": "NONE"},
            "texts[0] has 22 tokens, the model takes at most 12: shorten it, or set truncate to E",
        ),
        (
            "/embed",
            {"inputs": "prize " * 20},
            "inputs[0] has 22 tokens, the model takes at most 12: shorten it, or set truncate to t",
        ),
        ("/embed", {"normalize": False}, "normalize is not supported: false, but the model itself"),
        (
            "/embed",
            {"prompt_name": "poem"},
            "prompt_name is 'poem', expected one of passage, q",
        ),
    ],
)
async def test_what_is_refused_is_named_as_the_body_has_it(
    served: Served, path: str, fields: dict[str, Any], text: str
) -> None:
    names = {"/v1/embeddings": "input", "/v2/embed": "texts", "/embed": "inputs"}
    body = {"model": "wide", names[path]: TEXTS, **fields}
    answer = await within_patience(ask(served, "POST", path, body))
    assert answer.status == 400
    error = answer.json["error"]
    message = error if isinstance(error, str) else error["message"]
    assert message.startswith(text)


@pytest.mark.parametrize("name", ["use_activation", "normalize", "normalized"])
async def test_vectors_have_length_1_where_that_is_requested(served: Served, name: str) -> None:
    fields = {"model": "mini", "input": TEXTS}
    plain = np.array([each["embedding"] for each in (await post(served, OPENAI, **fields))["data"]])
    found = await post(served, OPENAI, **fields, **{name: True})
    vectors = np.array([each["embedding"] for each in found["data"]])
    assert np.allclose(vectors, unit(plain), atol=1e-6)
    refused = await within_patience(ask(served, "POST", OPENAI, {**fields, name: False}))
    assert refused.status == 400
    assert refused.json["error"]["param"] == name


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"task": "retrieval.query"}, {"input_type": "query"}),
        ({"task": "retrieval.passage"}, {"input_type": "passage"}),
        ({"output_dimension": 8.0}, {"dimensions": 8}),
        ({"output_dtype": "int8"}, {"embedding_type": "int8"}),
        ({"input": "win " * 30, "truncate": True}, {"truncate_prompt_tokens": -1}),
        ({"input": "win " * 30, "truncation": True}, {"truncate_prompt_tokens": -1}),
    ],
)
async def test_fields_of_jina_and_voyage_are_those_of_openai_and_vllm(
    served: Served, fields: dict[str, Any], same: dict[str, Any]
) -> None:
    asked = {"model": "wide", "input": fields.get("input", TEXTS)}
    found = await post(served, OPENAI, **{**asked, **fields})
    assert found["data"] == (await post(served, OPENAI, **asked, **same))["data"]
    refused = await within_patience(ask(served, "POST", OPENAI, {**asked, **fields, **same}))
    assert (refused.status, "expected one of them" in refused.body.decode()) == (400, True)
