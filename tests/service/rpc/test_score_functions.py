"""Scores over the wire, by the function that a manifest names: typed answers and tensors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attendant.v1 import text_pb2
from grpc import StatusCode

from tests.fakes.http import ask
from tests.fakes.serving import Served, inference, refusal, serving, within_patience
from tests.fakes.sessions import (
    FakeSessions,
    classifier_manifest,
    text_session,
    text_values,
    token_ids,
    write_model,
)
from tests.fakes.tasks import reading_manifest

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"http_port": 0}
TEXTS = ["win", "lunch now", "free cash"]
PAIRS = [("win", "prize"), ("win", "lunch now")]
TOPICS, GRADES = ("sport", "money", "food"), ("clear", "kind")
CLASSIFIERS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "topics": (TOPICS, {"score_function": "sigmoid"}),
    "grades": (GRADES, {"score_function": "identity"}),
    "quality": (("quality",), {"score_function": "identity"}),
}


@asynccontextmanager
async def SERVE(repository: Path, **settings: Any) -> AsyncIterator[Served]:  # noqa: N802 - see conftest
    """Classifiers of several labels, and of numbers; a scorer of pairs whose score is the logit."""
    sessions = {"relevance": lambda: text_session("logits", 1)}
    raw = reading_manifest("pair-scoring", score_function="identity")
    write_model(repository, "relevance", raw)
    for name, (labels, changes) in CLASSIFIERS.items():
        write_model(repository, name, classifier_manifest(labels=labels, **changes))
        sessions[name] = lambda size=len(labels): text_session("logits", size)  # type: ignore[misc]
    async with serving(repository, FakeSessions(**sessions), **settings) as served:
        yield served


def logits(text: str, size: int) -> np.ndarray:
    return text_values(token_ids(text), size)


def sigmoid(values: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-values))
    return result


async def test_each_of_several_labels_has_a_probability_of_its_own(served: Served) -> None:
    """The best first, and as many as are asked for; they do not add up to 1."""
    for count in (2, 3):
        request = text_pb2.ClassifyRequest(model="topics", texts=TEXTS, top_k=count)
        response = await served.text.Classify(request)
        for text, result in zip(TEXTS, response.results, strict=True):
            scores = sigmoid(logits(text, 3))
            order = np.argsort(-scores, kind="stable")[:count]
            assert [each.label for each in result.labels] == [TOPICS[index] for index in order]
            assert [each.score for each in result.labels] == pytest.approx(scores[order].tolist())


@pytest.mark.parametrize("model", ["grades", "quality"])
async def test_the_score_of_a_regression_is_its_number(served: Served, model: str) -> None:
    """Of one output and of several, which keep their names."""
    labels, _ = CLASSIFIERS[model]
    request = text_pb2.ClassifyRequest(model=model, texts=TEXTS, all_scores=True)
    response = await served.text.Classify(request)
    for text, result in zip(TEXTS, response.results, strict=True):
        numbers = {each.label: each.score for each in result.labels}
        assert numbers == dict(zip(labels, logits(text, len(labels)).tolist(), strict=True))


async def test_a_scorer_of_pairs_answers_its_logit_where_the_manifest_says_so(
    served: Served,
) -> None:
    firsts, seconds = zip(*PAIRS, strict=True)
    request = text_pb2.ScorePairsRequest(model="relevance", texts=firsts, text_pairs=seconds)
    expected = [
        float(text_values([*token_ids(first), *token_ids(second)[1:]], 1)[0])
        for first, second in PAIRS
    ]
    response = await served.text.ScorePairs(request)
    assert [each.score for each in response.results] == expected
    asked = inference("relevance", text=firsts, text_pair=seconds)
    (scores,) = (await served.inference.ModelInfer(asked)).raw_output_contents
    assert np.frombuffer(scores, "<f4").tolist() == expected
    for is_raw, of in ((None, expected), (True, expected), (False, sigmoid(np.array(expected)))):
        request.raw_scores = bool(is_raw)
        if is_raw is None:
            request.ClearField("raw_scores")
        response = await served.text.ScorePairs(request)
        assert [each.score for each in response.results] == pytest.approx(list(of))


async def test_the_tensor_of_scores_is_made_by_the_same_function(served: Served) -> None:
    reply = await served.inference.ModelInfer(inference("topics", text=TEXTS))
    by_name = {
        output.name: raw
        for output, raw in zip(reply.outputs, reply.raw_output_contents, strict=True)
    }
    expected = [float(sigmoid(logits(text, 3)).max()) for text in TEXTS]
    assert np.frombuffer(by_name["score"], "<f4").tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("function", "scores_of"),
    [
        (text_pb2.SCORE_FUNCTION_SIGMOID, sigmoid),
        (text_pb2.SCORE_FUNCTION_IDENTITY, lambda values: values),
        (text_pb2.SCORE_FUNCTION_SOFTMAX, lambda values: np.exp(values) / np.exp(values).sum()),
    ],
)
@pytest.mark.parametrize("model", ["topics", "grades"])
async def test_a_request_may_name_another_function(
    served: Served, model: str, function: Any, scores_of: Any
) -> None:
    labels, _ = CLASSIFIERS[model]
    request = text_pb2.ClassifyRequest(
        model=model, texts=TEXTS, all_scores=True, score_function=function
    )
    response = await served.text.Classify(request)
    for text, result in zip(TEXTS, response.results, strict=True):
        expected = scores_of(logits(text, len(labels))).tolist()
        found = {each.label: each.score for each in result.labels}
        assert found == pytest.approx(dict(zip(labels, expected, strict=True)))


async def test_an_unknown_function_is_refused(served: Served) -> None:
    request = text_pb2.ClassifyRequest(model="topics", texts=TEXTS, score_function=4)  # type: ignore[arg-type]
    found = await refusal(served.text.Classify(request))
    assert found == (StatusCode.INVALID_ARGUMENT, "score_function is 4, expected 0 to 3")


async def test_models_say_what_their_scores_are(served: Served) -> None:
    response = await served.text.ListModels(text_pb2.ListModelsRequest())
    assert {model.name: model.score_function for model in response.models} == {
        "topics": "sigmoid",
        "grades": "identity",
        "quality": "identity",
        "relevance": "identity",
    }


async def test_classes_over_http_are_scored_by_it_too(served: Served) -> None:
    """Or not by any, with vLLM's `use_activation`."""
    for fields, scores_of in (({}, sigmoid), ({"use_activation": False}, lambda values: values)):
        body = {"model": "topics", "input": TEXTS, **fields}
        answer = await within_patience(ask(served, "POST", "/classify", body))
        for text, result in zip(TEXTS, answer.json["data"], strict=True):
            scores = scores_of(logits(text, 3))
            assert result["probs"] == pytest.approx(scores.tolist())
            assert result["label"] == TOPICS[scores.argmax()]
