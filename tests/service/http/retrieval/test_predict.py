"""Labels of texts and of pairs, as text-embeddings-inference answers them."""

from typing import Any

import pytest
from attendant.v1 import text_pb2

from tests.fakes.http import ask
from tests.fakes.serving import Served, within_patience

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXTS = ["win a prize", "lunch now"]
LONG = " ".join(["prize"] * 20)


async def expected(served: Served, **fields: Any) -> list[list[dict[str, Any]]]:
    request = text_pb2.ClassifyRequest(model="spam", all_scores=True, **fields)
    results = (await served.text.Classify(request)).results
    return [[{"score": one.score, "label": one.label} for one in each.labels] for each in results]


async def posted(served: Served, inputs: Any, **fields: Any) -> Any:
    body = {"model": "spam", "inputs": inputs, **fields}
    answer = await within_patience(ask(served, "POST", "/predict", body))
    assert answer.status == 200, answer.body
    return answer.json


async def test_labels_come_best_first_for_one_text_and_for_several(served: Served) -> None:
    results = await expected(served, texts=TEXTS)
    assert await posted(served, TEXTS[0]) == await posted(served, TEXTS[:1]) == results[0]
    assert await posted(served, [[text] for text in TEXTS]) == results
    logits = text_pb2.SCORE_FUNCTION_IDENTITY
    raw = await expected(served, texts=TEXTS, score_function=logits)
    assert await posted(served, [[text] for text in TEXTS], raw_scores=True) == raw


async def test_two_texts_in_a_list_are_a_pair(served: Served) -> None:
    (pair,) = await expected(served, texts=TEXTS[:1], text_pairs=TEXTS[1:])
    assert await posted(served, TEXTS) == pair
    assert await posted(served, [TEXTS]) == [pair]


async def test_a_long_text_is_cut_on_request(served: Served) -> None:
    cut = await expected(served, texts=[LONG], truncate=True)
    assert await posted(served, [[LONG]], truncate=True, truncation_direction="Right") == cut


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"inputs": ["a", "b", "c"]}, "inputs has 3 texts, expected 1 or 2: of a batch, each text"),
        ({"inputs": [["a"], []]}, "inputs[1] has 0 texts, expected 1 or 2"),
        ({"inputs": []}, "inputs has 0 elements, expected 1 to"),
        ({"inputs": ["a", ["b"]]}, "inputs has texts and lists of texts, expected either"),
        ({"inputs": [["a"], ["b", "c"]]}, "inputs has texts and pairs, expected either"),
        ({"inputs": [["a"], [LONG]]}, "inputs[1] has 22 tokens, the model takes at most 12: "),
        ({"inputs": "a", "truncation_direction": "Left"}, "truncation_direction is not supported"),
    ],
)
async def test_what_cannot_be_labelled_is_refused_by_name(
    served: Served, fields: dict[str, Any], text: str
) -> None:
    answer = await within_patience(ask(served, "POST", "/predict", {"model": "spam", **fields}))
    assert answer.status == 400
    assert answer.json["error"].startswith(text)
