"""Every task in the shapes of Hugging Face's inference API, against the typed API's answers."""

import base64
import math
from typing import Any

import pytest
from attendant.v1 import text_pb2

from tests.fakes.every_task import call
from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, within_patience
from tests.fakes.tasks import WHITE

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXTS = ["win a prize", "lunch now"]
SMILE = "\U0001f600"
CONTEXT = f"{SMILE} sorry, free lunch cash now"


async def post(served: Served, path: str, **fields: Any) -> Answer:
    return await within_patience(ask(served, "POST", path, fields))


async def posted(served: Served, path: str, **fields: Any) -> Any:
    answer = await post(served, path, **fields)
    assert answer.status == 200, answer.body
    return answer.json


def labels_of(result: Any) -> list[dict[str, Any]]:
    return [{"label": each.label, "score": each.score} for each in result.labels]


@pytest.mark.parametrize(
    "path",
    [
        "/models/spam",
        "/models/spam/pipeline/text-classification",
        "/pipeline/text-classification/spam",
    ],
)
async def test_all_labels_of_each_text_come_best_first(served: Served, path: str) -> None:
    expected = await call(served, "Classify", texts=TEXTS, all_scores=True)
    found = await posted(served, path, inputs=TEXTS)
    assert found == [labels_of(result) for result in expected.results]
    assert await posted(served, path, inputs=TEXTS[0]) == found[:1]
    best = await posted(
        served, path, inputs=TEXTS, parameters={"top_k": 1, "function_to_apply": "softmax"}
    )
    assert best == [labels[:1] for labels in found]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("softmax", text_pb2.SCORE_FUNCTION_SOFTMAX),
        ("sigmoid", text_pb2.SCORE_FUNCTION_SIGMOID),
        ("none", text_pb2.SCORE_FUNCTION_IDENTITY),
    ],
)
async def test_scores_are_made_by_the_function_that_is_named(
    served: Served, name: str, function: Any
) -> None:
    expected = await call(served, "Classify", texts=TEXTS, all_scores=True, score_function=function)
    parameters = {"function_to_apply": name}
    found = await posted(served, "/models/spam", inputs=TEXTS, parameters=parameters)
    assert found == [labels_of(result) for result in expected.results]


async def test_two_texts_are_classified_together(served: Served) -> None:
    expected = await call(served, "Classify", texts=["win"], text_pairs=["prize"], all_scores=True)
    found = await posted(served, "/models/spam", inputs={"text": "win", "text_pair": "prize"})
    assert found == [labels_of(expected.results[0])]


async def test_an_embedder_gives_vectors_and_similarities_at_its_own_address(
    served: Served,
) -> None:
    expected = await call(served, "Embed", texts=TEXTS)
    vectors = [list(result.values) for result in expected.results]
    assert await posted(served, "/models/mini", inputs=TEXTS) == vectors
    assert await posted(served, "/models/mini", inputs=TEXTS[0]) == vectors[0]
    unit = await posted(served, "/models/mini", inputs=TEXTS, normalize=True)
    assert [math.fsum(v * v for v in vector) for vector in unit] == pytest.approx([1, 1])
    compared = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    expected = await call(served, "Similarity", texts=TEXTS[:1], others=TEXTS)
    similarities = list(expected.rows[0].values)
    assert await posted(served, "/models/mini", inputs=compared) == similarities
    named = await posted(served, "/pipeline/sentence-similarity/mini", inputs=compared)
    assert named == similarities


async def test_long_texts_are_cut_where_that_is_requested(served: Served) -> None:
    long = " ".join(["prize"] * 20)
    assert (await post(served, "/models/mini", inputs=long)).status == 400
    cut = await posted(served, "/models/mini", inputs=long, truncate=True)
    expected = await call(served, "Embed", texts=[long], truncate=True)
    assert cut == list(expected.results[0].values)


async def test_a_scorer_of_pairs_gives_its_scores(served: Served) -> None:
    expected = await call(served, "ScorePairs")
    compared = {"source_sentence": "win", "sentences": ["prize", "lunch now"]}
    found = await posted(served, "/models/match", inputs=compared)
    assert found == [result.score for result in expected.results]


async def test_features_are_a_vector_per_token(served: Served) -> None:
    expected = await call(served, "ExtractFeatures", texts=TEXTS, pooling="POOLING_NONE")
    vectors = [[list(v.values) for v in result.vectors] for result in expected.results]
    assert await posted(served, "/models/deep", inputs=TEXTS) == vectors
    assert await posted(served, "/models/deep", inputs=TEXTS[1]) == vectors[1]


async def test_a_mask_is_filled_in_its_text(served: Served) -> None:
    expected = await call(served, "FillMask", texts=[f"{SMILE} win the [MASK] now"], top_k=3)
    fills = expected.results[0].masks[0].fills
    found = await posted(
        served, "/models/fills", inputs=f"{SMILE} win the [MASK] now", parameters={"top_k": 3}
    )
    assert found == [
        {
            "score": fill.score,
            "token": fill.token_id,
            "token_str": fill.token,
            "sequence": f"{SMILE} win the {fill.token} now",
        }
        for fill in fills
    ]


async def test_several_masks_and_texts_are_lists_of_lists(served: Served) -> None:
    two, one = "[MASK] lunch [MASK]", "win the [MASK]"
    found = await posted(served, "/models/fills", inputs=[two, one])
    assert [len(found), len(found[0]), len(found[1])] == [2, 2, 5]
    first, second = found[0][0][0], found[0][1][0]
    assert first["sequence"] == f"{first['token_str']} lunch [MASK]"
    assert second["sequence"] == f"[MASK] lunch {second['token_str']}"
    assert await posted(served, "/models/fills", inputs=one) == found[1]


async def test_targets_bound_the_fills(served: Served) -> None:
    wanted = {"targets": ["prize", "cash"], "top_k": 1}
    (best,) = await posted(served, "/models/fills", inputs="win the [MASK]", parameters=wanted)
    expected = await call(
        served, "FillMask", texts=["win the [MASK]"], candidates=["prize", "cash"]
    )
    assert best["token"] == expected.results[0].masks[0].fills[0].token_id


async def test_entities_have_offsets_of_code_points(served: Served) -> None:
    text = f"{SMILE} win prize, now"
    expected = await call(served, "ClassifyTokens", texts=[text])
    (entity,) = expected.results[0].entities
    (found,) = await posted(served, "/models/tags", inputs=text)
    assert found == {
        "entity_group": "prize",
        "score": entity.score,
        "word": "win prize",
        "start": 2,
        "end": 11,
    }
    assert await posted(served, "/models/tags", inputs=[text, "now"]) == [[found], []]
    ignoring = {"ignore_labels": ["prize"], "aggregation_strategy": "simple"}
    assert await posted(served, "/models/tags", inputs=text, parameters=ignoring) == []
    by_token = await posted(
        served, "/models/tags", inputs=text, parameters={"aggregation_strategy": "none"}
    )
    assert [(each["entity"], each["word"]) for each in by_token] == [
        ("B-prize", "win"),
        ("I-prize", "prize"),
    ]


async def test_a_question_has_one_answer_or_a_list(served: Served) -> None:
    inputs = {"question": "win", "context": CONTEXT}
    expected = await call(served, "Answer", context=CONTEXT, must_answer=True)
    best = expected.answers[0]
    found = await posted(served, "/models/asks", inputs=inputs)
    assert found == {
        "answer": best.text,
        "score": best.score,
        "start": best.start,
        "end": best.end,
    }
    assert found["answer"] == CONTEXT[found["start"] : found["end"]] == "free lunch cash"
    several = await posted(served, "/models/asks", inputs=inputs, parameters={"top_k": 2})
    assert several[0] == found


async def test_an_impossible_answer_is_empty_where_it_is_accepted(served: Served) -> None:
    inputs = {"question": "win", "context": "sorry now"}
    expected = await call(served, "Answer", context="sorry now")
    accepted = await posted(
        served, "/models/asks", inputs=inputs, parameters={"handle_impossible_answer": True}
    )
    score = pytest.approx(expected.no_answer_score)
    assert accepted == {"answer": "", "score": score, "start": 0, "end": 0}
    assert (await posted(served, "/models/asks", inputs=inputs))["answer"]


async def test_an_image_comes_as_it_is_or_in_base64(served: Served) -> None:
    expected = await call(served, "ClassifyImage", images=[WHITE], all_scores=True)
    labels = labels_of(expected.results[0])
    raw = await within_patience(ask(served, "POST", "/models/light", WHITE))
    assert raw.json == labels
    text = base64.b64encode(WHITE).decode()
    for inputs in (text, f"data:image/png;base64,{text}"):
        found = await posted(served, "/models/light", inputs=inputs, parameters={"top_k": 1})
        assert found == labels[:1]


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/models/nix", {"inputs": "a"}, 404, "Request for unknown model: 'nix' is not found"),
        ("/models/simple", {"inputs": "a"}, 400, "model 'simple' has tensors alone"),
        ("/models/looks", {"inputs": "a"}, 400, "model 'looks' does attention, which has no"),
        ("/pipeline/nix/spam", {"inputs": "a"}, 404, "there is no such task, expected one of "),
        ("/models/spam/pipeline/nix", {}, 404, "there is no such task, expected one of "),
        ("/pipeline/fill-mask/spam", {"inputs": "a"}, 400, "model 'spam' does text-classification"),
        ("/models/spam", {}, 400, "inputs is missing"),
        ("/models/spam", {"inputs": 3}, 400, "inputs is 3, expected a text or a list of texts"),
        ("/models/spam", {"inputs": []}, 400, "inputs has 0 elements, expected 1 to 5"),
        ("/models/spam", {"inputs": {"text": "a"}}, 400, "inputs.text_pair is missing"),
        (
            "/models/spam",
            {"inputs": "a", "parameters": {"top_k": 0}},
            400,
            "parameters.top_k is out of range, expected a whole number of at least 1",
        ),
        (
            "/models/spam",
            {"inputs": "a", "parameters": {"function_to_apply": "relu"}},
            400,
            "function_to_apply is 'relu', expected one of softmax, sigmoid, none",
        ),
        (
            "/models/spam",
            {"inputs": "a", "parameters": {"candidate_labels": ["b", "c"]}},
            400,
            "candidate_labels is not supported: the model has labels of its own",
        ),
        (
            "/models/mini",
            {"inputs": "a", "prompt_name": "query"},
            400,
            "prompt_name is 'query', but model 'mini' has no prompts",
        ),
        (
            "/models/mini",
            {"inputs": {"source_sentence": "a", "sentences": []}},
            400,
            "sentences has 0 elements",
        ),
        (
            "/models/tags",
            {"inputs": "a", "parameters": {"aggregation_strategy": "nested"}},
            400,
            "aggregation_strategy is 'nested', expected one of none, simple, first, average, max",
        ),
        (
            "/models/asks",
            {"inputs": {"question": "a", "context": "b"}, "parameters": {"doc_stride": 3}},
            400,
            "doc_stride is not supported",
        ),
        ("/models/light", {"inputs": "?"}, 400, "inputs is no image in base64"),
        ("/models/light", {"inputs": 3}, 400, "inputs is a whole number, expected a text"),
        ("/models/fills", {"inputs": "no mask"}, 400, ""),
    ],
)
async def test_what_is_refused_has_a_text_alone(
    served: Served, path: str, body: dict[str, Any], status: int, text: str
) -> None:
    answer = await post(served, path, **body)
    assert (answer.status, list(answer.json)) == (status, ["error"])
    assert answer.json["error"].startswith(text)


async def test_bytes_that_are_no_image_are_refused(served: Served) -> None:
    answer = await within_patience(ask(served, "POST", "/models/light", b"nothing"))
    assert answer.status == 400


TOO_LONG = " ".join(["prize"] * 40)
CUT = ": shorten it, or set truncate to true"


@pytest.mark.parametrize(
    ("model", "inputs", "name", "end"),
    [
        ("spam", TOO_LONG, "inputs", ", or set truncate to true"),
        ("spam", ["win", TOO_LONG], "inputs[1]", ", or set truncate to true"),
        ("spam", {"text": "win", "text_pair": TOO_LONG}, "inputs", ", or set truncate to true"),
        ("mini", ["win", TOO_LONG], "inputs[1]", CUT),
        ("deep", TOO_LONG, "inputs", CUT),
        ("fills", ["[MASK]", f"{TOO_LONG} [MASK]"], "inputs[1]", ": shorten it"),
        ("tags", ["win", TOO_LONG], "inputs[1]", ": shorten it"),
        (
            "mini",
            {"source_sentence": TOO_LONG, "sentences": ["win"]},
            "source_sentence",
            ": shorten it",
        ),
        (
            "mini",
            {"source_sentence": "win", "sentences": ["win", TOO_LONG]},
            "sentences[1]",
            ": shorten it",
        ),
        (
            "match",
            {"source_sentence": "win", "sentences": ["win", TOO_LONG]},
            "sentences[1] with its source_sentence",
            ": shorten it",
        ),
    ],
)
async def test_a_text_that_is_too_long_is_named_as_in_the_body(
    served: Served, model: str, inputs: Any, name: str, end: str
) -> None:
    """And a cut is the way out where the body has a field for it, and nowhere else."""
    answer = await post(served, f"/models/{model}", inputs=inputs)
    error = answer.json["error"]
    assert answer.status == 400
    assert error.startswith(f"{name} has ")
    assert error.endswith(end)


async def test_a_text_without_a_mask_is_named_as_in_the_body(served: Served) -> None:
    answer = await post(served, "/models/fills", inputs=["win the [MASK]", "lunch"])
    assert answer.json["error"] == "inputs[1] has 0 [MASK], expected 1 to 16"


@pytest.mark.parametrize(
    "asking",
    [{"truncate": True}, {"parameters": {"truncate": True}}, {"parameters": {"truncation": True}}],
)
async def test_a_text_that_is_too_long_for_its_labels_is_cut_on_request(
    served: Served, asking: dict[str, Any]
) -> None:
    """As its clients spell it; the refusal says how."""
    long = "prize " * 30
    answer = await ask(served, "POST", "/models/spam", {"inputs": long})
    assert answer.status == 400
    assert answer.json["error"].endswith("set truncate to true")
    expected = await call(served, "Classify", texts=[long], all_scores=True, truncate=True)
    found = await posted(served, "/models/spam", inputs=long, **asking)
    assert found == [labels_of(expected.results[0])]
