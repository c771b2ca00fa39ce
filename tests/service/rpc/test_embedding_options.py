"""Prompts, widths and encodings of embeddings over the wire, and every way to be refused."""

from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from attendant.v1 import features_pb2
from attendant.v1 import text_pb2 as pb
from grpc import StatusCode

from service.contract.embedder_use import MAX_PROMPT_CHARACTERS, EmbedderUse
from tests.fakes.every_task import call
from tests.fakes.serving import Served, default_sessions, refusal, serving, text_request
from tests.fakes.sessions import (
    embedder_manifest,
    text_session,
    text_values,
    token_ids,
    write_model,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
SIZE, TEXTS = 12, ["win a prize", "lunch"]
PROMPTS = {"document": "", "query": "win free "}
RANGES = np.stack([np.zeros(SIZE), np.linspace(0.0, 2.0, SIZE)]).astype("<f4")  # the first is flat
USE = EmbedderUse(
    prompts=PROMPTS,
    default_prompt="query",
    dimensions=(8, 3),
    is_normalized=True,
    similarity="dot",
    ranges={str(SIZE): b64encode(RANGES.tobytes()).decode()},
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """`wide` has prompts, shorter vectors and ranges of 12 values; `mini` has none of them."""
    repository: Path = tmp_path_factory.mktemp("models")
    write_model(repository, "wide", embedder_manifest(embedding_size=SIZE, embedder=USE))
    write_model(repository, "mini", embedder_manifest())
    sessions = default_sessions()
    sessions._makers["wide"] = lambda: text_session("embedding", SIZE)
    async with serving(repository, sessions) as running:
        yield running


def vectors_of(prompt: str, *texts: str) -> np.ndarray:
    return np.stack([text_values(token_ids(f"{prompt}{text}"), SIZE) for text in texts])


def shortened(vectors: np.ndarray, width: int) -> np.ndarray:
    cut = vectors[:, :width]
    return np.asarray(cut / np.linalg.norm(cut, axis=1, keepdims=True))


async def embedded(served: Served, **fields: Any) -> pb.EmbedResponse:
    request = pb.EmbedRequest(model="wide", texts=TEXTS, **fields)
    response: pb.EmbedResponse = await served.text.Embed(request)
    return response


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({}, PROMPTS["query"]),
        ({"prompt_name": "query"}, PROMPTS["query"]),
        ({"prompt_name": "document"}, ""),
        ({"prompt": "free cash "}, "free cash "),
        ({"prompt": ""}, ""),
    ],
)
async def test_a_prompt_is_put_in_front_of_each_text(
    served: Served, fields: dict[str, Any], prompt: str
) -> None:
    answer = await embedded(served, **fields)
    found = [list(each.values) for each in answer.results]
    np.testing.assert_array_equal(found, vectors_of(prompt, *TEXTS))
    assert answer.results[0].num_tokens == len(token_ids(f"{prompt}{TEXTS[0]}"))


async def test_tokens_are_taken_as_they_are_without_the_default_prompt(served: Served) -> None:
    request = pb.EmbedRequest(model="wide")
    request.token_ids.add(ids=token_ids(TEXTS[0]))
    (result,) = (await served.text.Embed(request)).results
    np.testing.assert_array_equal(list(result.values), vectors_of("", TEXTS[0])[0])


@pytest.mark.parametrize("width", [3, 8])
async def test_a_vector_is_cut_and_has_length_1_again(served: Served, width: int) -> None:
    answer = await embedded(served, prompt="", dimensions=width)
    found = np.array([list(each.values) for each in answer.results])
    np.testing.assert_allclose(found, shortened(vectors_of("", *TEXTS), width), rtol=1e-6)


async def test_encodings_are_those_of_sentence_transformers(served: Served) -> None:
    """`quantize_embeddings`: 256 steps of each range, a flat range in steps of 1; bits above 0."""
    encodings = [
        pb.EMBEDDING_ENCODING_INT8,
        pb.EMBEDDING_ENCODING_UINT8,
        pb.EMBEDDING_ENCODING_BINARY,
        pb.EMBEDDING_ENCODING_UBINARY,
    ]
    vectors = vectors_of("", *TEXTS)
    starts, steps = RANGES[0], (RANGES[1] - RANGES[0]) / 255
    steps = np.where(steps == 0, 1, steps)
    buckets = np.clip(np.floor((vectors - starts) / steps), 0, 255)
    bits = np.packbits(vectors > 0, axis=-1)
    expected = [
        (buckets - 128).astype(np.int8),
        buckets.astype(np.uint8),
        (bits.astype(int) - 128).astype(np.int8),
        bits,
    ]
    answer = await embedded(served, prompt="", encodings=encodings)
    for row, result in enumerate(answer.results):
        assert not result.values, "float was not requested"
        assert [each.encoding for each in result.encoded] == encodings
        for each, values in zip(result.encoded, expected, strict=True):
            assert each.values == values[row].tobytes()


async def test_bits_are_of_the_vector_that_was_cut_and_beside_its_values(served: Served) -> None:
    both = [pb.EMBEDDING_ENCODING_UBINARY, pb.EMBEDDING_ENCODING_FLOAT]
    answer = await embedded(served, prompt="", dimensions=3, encodings=both)
    for result in answer.results:
        (encoded,) = result.encoded
        assert encoded.values == np.packbits(np.array(result.values) > 0).tobytes()
        assert len(result.values) == 3


async def test_similarity_has_a_prompt_for_each_side_and_the_declared_measure(
    served: Served,
) -> None:
    answer = await call(
        served,
        "Similarity",
        model="wide",
        texts=TEXTS,
        others=["now"],
        prompt_name="query",
        others_prompt_name="document",
    )
    expected = vectors_of(PROMPTS["query"], *TEXTS) @ vectors_of("", "now").T
    np.testing.assert_allclose([list(row.values) for row in answer.rows], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("measure", "order"),
    [
        (features_pb2.SIMILARITY_MEASURE_EUCLIDEAN, 2),
        (features_pb2.SIMILARITY_MEASURE_MANHATTAN, 1),
    ],
)
async def test_a_distance_is_negative(served: Served, measure: int, order: int) -> None:
    answer = await call(
        served,
        "Similarity",
        model="wide",
        texts=TEXTS,
        measure=measure,
        prompt_name="document",
        others_prompt_name="document",
    )
    vectors = vectors_of("", *TEXTS)
    expected = -np.linalg.norm(vectors[:, None] - vectors[None], order, axis=-1)
    np.testing.assert_allclose([list(row.values) for row in answer.rows], expected, rtol=1e-6)


async def test_vectors_of_fewer_values_are_compared_where_they_are_asked_for(
    served: Served,
) -> None:
    answer = await call(
        served, "Similarity", model="wide", texts=TEXTS, prompt_name="document", dimensions=3
    )
    vectors = shortened(vectors_of("", *TEXTS), 3)
    found = [list(row.values) for row in answer.rows]
    np.testing.assert_allclose(found, vectors @ vectors.T, rtol=1e-5)


async def test_parameters_of_a_tensor_request_are_the_same(served: Served) -> None:
    request = text_request("wide", *TEXTS)
    request.parameters["prompt_name"].string_param = "document"
    request.parameters["dimensions"].int64_param = 8
    response = await served.inference.ModelInfer(request)
    found = np.frombuffer(response.raw_output_contents[0], "<f4").reshape(2, 8)
    np.testing.assert_allclose(found, shortened(vectors_of("", *TEXTS), 8), rtol=1e-6)
    request = text_request("wide", *TEXTS)
    request.parameters["prompt"].string_param = "free cash "
    response = await served.inference.ModelInfer(request)
    found = np.frombuffer(response.raw_output_contents[0], "<f4").reshape(2, SIZE)
    np.testing.assert_array_equal(found, vectors_of("free cash ", *TEXTS))
    default = await served.inference.ModelInfer(text_request("wide", *TEXTS))
    found = np.frombuffer(default.raw_output_contents[0], "<f4").reshape(2, SIZE)
    np.testing.assert_array_equal(found, vectors_of(PROMPTS["query"], *TEXTS))


async def test_prompts_and_widths_are_listed(served: Served) -> None:
    mini, wide = (await served.text.ListModels(pb.ListModelsRequest())).models
    assert {each.name: each.text for each in wide.prompts} == PROMPTS
    assert (wide.default_prompt, list(wide.dimensions)) == ("query", [8, 3])
    assert (list(mini.prompts), mini.default_prompt, list(mini.dimensions)) == ([], "", [])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"prompt_name": "qwery"}, "prompt_name is 'qwery', expected one of document, query"),
        (
            {"model": "mini", "prompt_name": "query"},
            "prompt_name is 'query', but model 'mini' has no prompts: put the text itself in front",
        ),
        (
            {"prompt_name": "query", "prompt": "a"},
            "prompt stands in place of prompt_name, expected one of them",
        ),
        (
            {"prompt": "a" * (MAX_PROMPT_CHARACTERS + 1)},
            "prompt has 4097 characters, expected at most 4096",
        ),
        ({"dimensions": 4}, "dimensions is 4, expected one of 12, 8, 3"),
        (
            {"model": "mini", "dimensions": 3},
            "dimensions is 3, expected 4: the model was not trained for shorter vectors",
        ),
        ({"encodings": [9]}, "encodings has 9, expected 0 to 5"),
        (
            {"encodings": [pb.EMBEDDING_ENCODING_INT8], "dimensions": 3},
            "encodings has int8, but the model's manifest has no ranges of its values: export it "
            "again, or ask for binary or ubinary",
        ),
        (
            {"texts": [], "token_ids": [{"ids": [4]}], "prompt_name": "query"},
            "prompt_name is put in front of texts, expected none beside token_ids",
        ),
    ],
)
async def test_what_cannot_be_chosen_is_refused_by_field_value_and_limit(
    served: Served, fields: dict[str, Any], text: str
) -> None:
    request = pb.EmbedRequest(**{"model": "wide", "texts": TEXTS, **fields})
    assert await refusal(served.text.Embed(request)) == (StatusCode.INVALID_ARGUMENT, text)


async def test_a_wrong_parameter_of_a_tensor_request_is_refused_by_name(served: Served) -> None:
    request = text_request("wide", *TEXTS)
    request.parameters["dimensions"].int64_param = 5
    text = "dimensions is 5, expected one of 12, 8, 3"
    code, found = await refusal(served.inference.ModelInfer(request))
    assert (code, found) == (StatusCode.INVALID_ARGUMENT, text)
