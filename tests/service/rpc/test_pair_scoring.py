"""Pairs scored over the wire: the typed call, tensors, and the command."""

import json
import math
from typing import Any

import numpy as np
import pytest
from attendant.v1 import text_pb2
from grpc import StatusCode

from service.serving.tasks.task import sigmoid
from tests.fakes.command_line import run
from tests.fakes.every_task import LONG, MAX_TEXTS, call, every_task
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
    scores = sigmoid(logits)
    assert scores.dtype == np.float32
    assert scores[:, 0].tolist() == pytest.approx(
        [0, 1 / (1 + math.e), 0.5, math.e / (1 + math.e), 1]
    )


def logit(text: str) -> float:
    share = expected(text)
    return math.log(share / (1 - share))


async def test_raw_scores_are_the_logits_of_which_scores_are_the_sigmoid(served: Served) -> None:
    for is_raw, of in ((None, expected), (False, expected), (True, logit)):
        request = text_pb2.ScorePairsRequest(
            model="match", texts=[QUERY] * len(TEXTS), text_pairs=TEXTS, raw_scores=is_raw
        )
        found = await served.text.ScorePairs(request)
        scores = [result.score for result in found.results]
        assert scores == pytest.approx([of(text) for text in TEXTS], abs=1e-5)
        found = await call(served, "Rerank", query=QUERY, documents=TEXTS, raw_scores=is_raw)
        ranked = {result.index: result.score for result in found.results}
        assert [ranked[index] for index in range(len(TEXTS))] == scores


async def test_documents_come_best_first_with_their_places(served: Served) -> None:
    found = await call(served, "Rerank", query=QUERY, documents=TEXTS)
    order = sorted(range(len(TEXTS)), key=lambda index: -expected(TEXTS[index]))
    assert [result.index for result in found.results] == order
    assert [result.num_tokens for result in found.results] == [[5, 6, 5, 4][i] for i in order]
    assert found.num_tokens == 20
    (batch,) = served.sessions["match"].batches
    assert len(batch["input_ids"]) == len(TEXTS), "documents share a batch"
    for top_n in (1, 2, 9):
        best = await call(served, "Rerank", query=QUERY, documents=TEXTS, top_n=top_n)
        assert [result.index for result in best.results] == order[:top_n]
        assert best.num_tokens == 20


async def test_documents_of_one_score_keep_their_order(served: Served) -> None:
    """A logit of 30 and one of 40 have the same sigmoid in float32, and an order of their own."""
    session = served.sessions["match"]
    good = session.compute
    session.compute = lambda _: {
        "logits": np.array([[30], [40], [-1], [30], [-1]], np.float32),
    }
    found = await call(served, "Rerank", documents=["a"] * 5)
    session.compute = good
    assert [result.index for result in found.results] == [1, 0, 3, 2, 4]
    assert {result.score for result in found.results[:3]} == {1.0}


async def test_a_long_document_is_refused_by_its_place_or_cut_and_a_query_never_is(
    served: Served,
) -> None:
    asked: dict[str, Any] = {"query": QUERY, "documents": ["a", LONG]}
    code, text = await refusal(call(served, "Rerank", **asked))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text == (
        "documents[1] with its query has 34 tokens, the model takes at most 20: shorten it, "
        "or ask for truncation"
    )
    found = await call(served, "Rerank", **asked, truncate=True)
    assert {r.index: (r.num_tokens, r.is_truncated) for r in found.results} == {
        0: (5, False),
        1: (20, True),
    }
    found = await call(served, "Rerank", **asked, truncate=True, max_document_tokens=3)
    assert {r.index: (r.num_tokens, r.is_truncated) for r in found.results}[1] == (7, True)
    for truncate in (False, True):
        asked = {"query": LONG, "documents": ["a"], "truncate": truncate}
        assert await refusal(call(served, "Rerank", **asked)) == (
            StatusCode.INVALID_ARGUMENT,
            "query has 30 tokens, the model takes at most 16 and a document: shorten it",
        )


@pytest.mark.parametrize("count", [0, MAX_TEXTS + 1])
async def test_the_number_of_documents_is_bounded(served: Served, count: int) -> None:
    text = f"documents has {count} elements, expected 1 to {MAX_TEXTS}" + " (--max-texts)" * (
        count > 0
    )
    found = await refusal(call(served, "Rerank", documents=["a"] * count))
    assert found == (StatusCode.INVALID_ARGUMENT, text)


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
