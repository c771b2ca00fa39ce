"""`attendant.v1.FeatureService` over the wire: features by layer, likeness, and every refusal."""

import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from attendant.v1 import features_pb2 as pb
from attendant.v1 import features_pb2_grpc
from grpc import StatusCode

from service.calls.features import TextFeatures
from service.errors import InvalidArgument
from service.serving.tasks import features as features_task
from service.serving.tasks.features import (
    LAYERS,
    MAX_WEIGHTS_CHARACTERS,
    Features,
    parse_weights,
    stacked,
)
from service.serving.tasks.task import TextReply
from service.serving.tasks.texts import similarity
from tests.fakes.serving import (
    Served,
    default_sessions,
    refusal,
    serving,
    text_request,
    write_models,
)
from tests.fakes.sessions import FakeSessions, text_values, token_ids, write_model
from tests.fakes.tasks import NUM_LAYERS, SIZE, features_manifest, hidden_states_session, states_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXTS = ["win a prize", "", "sorry the cash now later"]
LONG = " ".join(["prize"] * 20)  # 22 tokens where the models take 12


# What each strategy makes of [S, 5, D]: the embeddings and four layers.
CHOSEN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "first": lambda states: states[:, 0],
    "last": lambda states: states[:, 4],
    "second_to_last": lambda states: states[:, 3],
    "sum_last_four": lambda states: states[:, 1] + states[:, 2] + states[:, 3] + states[:, 4],
    "concat_last_four": lambda states: np.concatenate([states[:, i] for i in (1, 2, 3, 4)], axis=1),
    "sum_all": lambda states: states[:, 1] + states[:, 2] + states[:, 3] + states[:, 4],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """`deep` has four layers and `flat` one, beside the usual models."""
    repository = tmp_path_factory.mktemp("model_repository")
    write_models(repository)
    write_model(repository, "deep", features_manifest())
    write_model(repository, "flat", features_manifest(1))
    sessions = default_sessions()
    makers = {"deep": hidden_states_session, "flat": lambda: hidden_states_session(1)}
    sessions = FakeSessions(**{**sessions._makers, **makers})
    async with serving(repository, sessions, max_texts=5) as running:
        yield running


@pytest.fixture
def stub(server: Served) -> Any:
    return features_pb2_grpc.FeatureServiceStub(server.channel)


def extract(**fields: Any) -> pb.ExtractFeaturesRequest:
    return pb.ExtractFeaturesRequest(**{"model": "deep", "texts": TEXTS, **fields})


def alike(**fields: Any) -> pb.SimilarityRequest:
    return pb.SimilarityRequest(**{"model": "mini", "texts": TEXTS, **fields})


def vectors_of(result: pb.TextFeatures) -> np.ndarray:
    return np.array([vector.values for vector in result.vectors], np.float32)


async def test_by_default_a_text_is_the_mean_of_its_last_layer(stub: Any) -> None:
    found = await stub.ExtractFeatures(extract())
    assert (found.model, found.version) == ("deep", "1")
    assert found.num_tokens == sum(len(token_ids(text)) for text in TEXTS)
    for text, result in zip(TEXTS, found.results, strict=True):
        wanted = states_of(token_ids(text))[:, -1].mean(axis=0)
        assert np.allclose(vectors_of(result), wanted[None])
        assert (result.num_tokens, len(result.tokens)) == (len(token_ids(text)), 0)


@pytest.mark.parametrize("layers", CHOSEN)
@pytest.mark.parametrize("pooling", ["mean", "cls", "none"])
async def test_each_request_chooses_layers_and_pooling(
    stub: Any, layers: str, pooling: str
) -> None:
    request = extract(
        layers=pb.Layers.Value(f"LAYERS_{layers.upper()}"),
        pooling=pb.Pooling.Value(f"POOLING_{pooling.upper()}"),
    )
    found = await stub.ExtractFeatures(request)
    for text, result in zip(TEXTS, found.results, strict=True):
        rows = CHOSEN[layers](states_of(token_ids(text)))
        wanted = {"mean": rows.mean(axis=0)[None], "cls": rows[:1], "none": rows}
        assert np.allclose(vectors_of(result), wanted[pooling])


async def test_every_strategy_is_tried() -> None:
    assert set(CHOSEN) == set(LAYERS)


async def test_without_pooling_every_token_has_its_vector_and_its_place(stub: Any) -> None:
    request = extract(texts=["win  prize"], pooling=pb.POOLING_NONE, layers=pb.LAYERS_FIRST)
    (result,) = (await stub.ExtractFeatures(request)).results
    assert np.allclose(vectors_of(result), states_of(token_ids("win prize"))[:, 0])
    assert [(token.piece, token.start, token.end) for token in result.tokens] == [
        ("[CLS]", 0, 0),
        ("win", 0, 3),
        ("prize", 5, 10),
        ("[SEP]", 0, 0),
    ]


async def test_layers_are_mixed_by_the_weights_given(stub: Any) -> None:
    weights = [0.5, 0.0, 0.25, -1.0, 2.0]
    request = extract(layers=pb.LAYERS_MIX, weights=weights, pooling=pb.POOLING_CLS)
    (first, *_) = (await stub.ExtractFeatures(request)).results
    states = states_of(token_ids(TEXTS[0]))[0]
    wanted = sum(weight * state for weight, state in zip(weights, states, strict=True))
    assert np.allclose(vectors_of(first)[0], wanted)


async def test_a_cut_text_says_so(stub: Any) -> None:
    request = extract(texts=["lunch", LONG], truncate=True, pooling=pb.POOLING_NONE)
    short, long = (await stub.ExtractFeatures(request)).results
    assert (short.is_truncated, long.is_truncated) == (False, True)
    assert (short.num_tokens, len(long.vectors), len(long.tokens)) == (3, 12, 12)


async def test_an_answer_is_no_larger_than_its_bound(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features_task, "MAX_VALUES", 20)
    request = extract(texts=["win a prize now later"], pooling=pb.POOLING_NONE)
    code, message = await refusal(stub.ExtractFeatures(request))
    assert code is StatusCode.INVALID_ARGUMENT
    assert "are 21 values, an answer has at most 20" in message
    await stub.ExtractFeatures(extract(texts=["win a prize now later"]))


async def test_features_of_more_than_a_few_tokens_are_made_beside_the_event_loop(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2^21 values, of 1,024 tokens or less, take a tenth of a second."""
    where = []
    results_of = features_task._results

    def noted(reply: TextReply, features: Features) -> Iterator[TextFeatures]:
        where.append(threading.current_thread() is threading.main_thread())
        return results_of(reply, features)

    monkeypatch.setattr(features_task, "_results", noted)
    await stub.ExtractFeatures(extract(texts=["win a prize"]))
    await stub.ExtractFeatures(extract(texts=["win a prize"] * 2))
    assert where == [True, False], "five tokens, and ten"


async def test_texts_have_no_more_hidden_states_than_their_bound(
    server: Served, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked of them, all are kept until the last is computed: nothing runs."""
    monkeypatch.setattr(features_task, "MAX_STATES", 11 * (NUM_LAYERS + 1) * SIZE)
    session = server.sessions["deep"]
    await stub.ExtractFeatures(extract(texts=["win a prize", "win the cash now"]))
    num_runs = len(session.batches)
    code, message = await refusal(stub.ExtractFeatures(extract(texts=["win a prize"] * 3)))
    assert code is StatusCode.INVALID_ARGUMENT
    assert message.startswith("the texts have 15 tokens in all, the server takes at most 11")
    assert len(session.batches) == num_runs


async def test_the_open_protocol_gives_a_tensor_of_pooled_features(server: Served) -> None:
    request = text_request("deep", *TEXTS)
    request.parameters["layers"].string_param = "mix"
    request.parameters["weights"].string_param = "0,0,1,0,-1"
    request.parameters["pooling"].string_param = "cls"
    reply = await server.inference.ModelInfer(request)
    found = np.frombuffer(reply.raw_output_contents[0], np.float32).reshape(3, SIZE)
    wanted = [states[0, 2] - states[0, 4] for states in map(states_of, map(token_ids, TEXTS))]
    assert [output.name for output in reply.outputs] == ["features"]
    assert np.allclose(found, wanted)
    plain = await server.inference.ModelInfer(text_request("deep", "win"))
    found = np.frombuffer(plain.raw_output_contents[0], np.float32)
    assert np.allclose(found, states_of(token_ids("win"))[:, -1].mean(axis=0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"layers": "third"}, "layers is 'third', expected one of first, last, second_to_last"),
        ({"pooling": "max"}, "pooling is 'max', expected one of mean, cls, none"),
        ({"pooling": "none"}, "pooling is 'none', expected mean or cls"),
        ({"layers": "mix"}, "weights has 0 elements, expected 5"),
        ({"layers": "mix", "weights": "1,x"}, "weights is '1,x', expected numbers and commas"),
        ({"weights": "1," * 2_049}, "weights has 4098 characters, expected at most 4096"),
    ],
)
async def test_the_open_protocol_refuses_what_cannot_be_extracted(
    server: Served, parameters: dict[str, str], message: str
) -> None:
    request = text_request("deep", "win")
    for name, value in parameters.items():
        request.parameters[name].string_param = value
    code, found = await refusal(server.inference.ModelInfer(request))
    assert code is StatusCode.INVALID_ARGUMENT
    assert message in found


VECTORS = np.stack([text_values(token_ids(text), 4) for text in TEXTS])


@pytest.mark.parametrize(
    ("measure", "wanted"),
    [
        (
            pb.SIMILARITY_MEASURE_COSINE,
            VECTORS
            @ VECTORS.T
            / np.outer(np.linalg.norm(VECTORS, axis=1), np.linalg.norm(VECTORS, axis=1)),
        ),
        (pb.SIMILARITY_MEASURE_DOT, VECTORS @ VECTORS.T),
        (pb.SIMILARITY_MEASURE_SCALED_DOT, VECTORS @ VECTORS.T / 2),  # of 4 values
    ],
)
async def test_every_text_is_compared_with_every_other(
    stub: Any, measure: int, wanted: np.ndarray
) -> None:
    found = await stub.Similarity(alike(measure=measure))
    assert np.allclose([row.values for row in found.rows], wanted, atol=1e-6)
    assert (found.model, found.version) == ("mini", "1")
    assert found.num_tokens == sum(len(token_ids(text)) for text in TEXTS)
    if measure == pb.SIMILARITY_MEASURE_COSINE:
        unspecified = await stub.Similarity(alike())
        assert unspecified.rows == found.rows


async def test_texts_are_compared_with_others_where_there_are_any(stub: Any) -> None:
    request = alike(texts=TEXTS[:1], others=TEXTS[1:], measure=pb.SIMILARITY_MEASURE_DOT)
    found = await stub.Similarity(request)
    assert np.allclose([row.values for row in found.rows], VECTORS[:1] @ VECTORS[1:].T)


async def test_a_vector_without_direction_is_like_nothing() -> None:
    vectors = np.array([[0.0, 0.0], [3.0, 4.0]], np.float32)
    assert similarity("cosine", vectors, vectors).tolist() == [[0.0, 0.0], [0.0, 1.0]]


MIX = pb.LAYERS_MIX


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        ("ExtractFeatures", {"layers": 99}, "layers is 99, expected 0 to 7"),
        ("ExtractFeatures", {"pooling": 9}, "pooling is 9, expected 0 to 3"),
        (
            "ExtractFeatures",
            {"model": "flat", "layers": pb.LAYERS_SUM_LAST_FOUR},
            "layers is 'sum_last_four', but the model has only 1 layers",
        ),
        (
            "ExtractFeatures",
            {"layers": MIX, "weights": [1.0]},
            "weights has 1 elements, expected 5",
        ),
        (
            "ExtractFeatures",
            {"weights": [1.0]},
            "weights has 1 elements, expected 0 for layers 'last'",
        ),
        (
            "ExtractFeatures",
            {"layers": MIX, "weights": [1.0] * 4 + [math.nan]},
            "expected finite numbers",
        ),
        (
            "Similarity",
            {"others": ["a"] * 3},
            "texts and others has 6 elements, expected 1 to 5 (--max-texts)",
        ),
        ("Similarity", {"others": [LONG]}, "text 3 has 22 tokens"),
        ("Similarity", {"measure": 6}, "measure is 6, expected 0 to 5"),
    ],
)
async def test_what_cannot_be_answered_is_refused_by_name(
    stub: Any, method: str, fields: dict[str, Any], message: str
) -> None:
    request = extract(**fields) if method == "ExtractFeatures" else alike(**fields)
    code, text = await refusal(getattr(stub, method)(request))
    assert code is StatusCode.INVALID_ARGUMENT
    assert message in text


async def test_features_of_a_model_say_what_they_need() -> None:
    Features("concat_last_four", "none").check(num_layers=4)
    with pytest.raises(InvalidArgument, match="only 3 layers"):
        Features("concat_last_four", "none").check(num_layers=3)


async def test_weights_as_text_may_be_as_long_as_the_limit() -> None:
    text = "1," * (MAX_WEIGHTS_CHARACTERS // 2 - 1) + "25"
    assert len(text) == MAX_WEIGHTS_CHARACTERS
    assert parse_weights(text)[-2:] == (1.0, 25.0)
    with pytest.raises(InvalidArgument, match=f"has {MAX_WEIGHTS_CHARACTERS + 1} characters"):
        parse_weights(f"{text}5")


async def test_features_of_no_text_are_no_rows_of_float32() -> None:
    found = stacked([])
    assert found.shape == (0, 0)
    assert found.dtype == np.float32
