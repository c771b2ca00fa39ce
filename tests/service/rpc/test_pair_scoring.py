"""Pairs scored over the wire: the typed call, tensors, and the command."""

import json
import math

import numpy as np
import pytest
from attendant.v1 import text_pb2
from grpc import StatusCode

from service.serving.tasks.pair_scoring import _scores
from tests.fakes.command_line import run
from tests.fakes.every_task import call, every_task
from tests.fakes.serving import Served, inference, refusal
from tests.fakes.sessions import LAST_ID, text_values, token_ids

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVE = every_task
QUERY, TEXTS = "win", ["prize", "lunch now", "home", ""]


def expected(text: str) -> float:
    """The sigmoid of what the session makes of [CLS] query [SEP] text [SEP]."""
    ids = [*token_ids(QUERY), *token_ids(text)[1:]]
    assert ids.count(LAST_ID) == 2
    return 1 / (1 + math.exp(-float(text_values(ids, 1)[0])))


async def test_each_pair_has_its_score_in_the_order_of_the_request(served: Served) -> None:
    request = text_pb2.ScorePairsRequest(
        model="match", texts=[QUERY] * len(TEXTS), text_pairs=TEXTS
    )
    found = await served.text.ScorePairs(request)
    assert (found.model, found.version) == ("match", "1")
    assert [result.score for result in found.results] == pytest.approx(list(map(expected, TEXTS)))
    assert [result.num_tokens for result in found.results] == [5, 6, 5, 4]


async def test_every_text_needs_a_second(served: Served) -> None:
    found = await refusal(call(served, "ScorePairs", text_pairs=["now"]))
    text = "text_pairs has 1 elements, expected 2 as texts has"
    assert found == (StatusCode.INVALID_ARGUMENT, text)


async def test_scores_are_a_tensor_in_the_inference_protocol(served: Served) -> None:
    asked = inference("match", text=[QUERY] * 4, text_pair=TEXTS)
    reply = await served.inference.ModelInfer(asked)
    assert [(out.name, out.datatype, list(out.shape)) for out in reply.outputs] == [
        ("score", "FP32", [4, 1])
    ]
    found = np.frombuffer(reply.raw_output_contents[0], "<f4")
    assert found.tolist() == pytest.approx(list(map(expected, TEXTS)))


async def test_scores_of_any_logit_are_numbers_from_0_to_1() -> None:
    logits = np.array([[-1e4], [-1.0], [0.0], [1.0], [1e4]], np.float32)
    scores = _scores(logits)
    assert scores.dtype == np.float32
    assert scores[:, 0].tolist() == pytest.approx(
        [0, 1 / (1 + math.e), 0.5, math.e / (1 + math.e), 1]
    )


async def test_the_command_shows_the_best_match_first(served: Served) -> None:
    command = "score", "match", QUERY, *TEXTS[:3]
    result = await run(served, *command)
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:3] for line in result.stdout.splitlines() if "│" in line]
    shown = [(text.strip(), float(score)) for text, score in rows]
    best = sorted(TEXTS[:3], key=lambda text: -expected(text))
    assert [text for text, _ in shown] == best
    assert [score for _, score in shown] == pytest.approx(list(map(expected, best)), abs=1e-4)
    result = await run(served, *command, "--json")
    results = json.loads(result.stdout)["results"]
    assert [each["score"] for each in results] == pytest.approx(list(map(expected, TEXTS[:3])))
