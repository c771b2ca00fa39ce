"""Vectors, tokens, scores and classes as OpenAI's and vLLM's clients ask for them."""

import base64
from typing import Any

import numpy as np
import pytest
from attendant.v1 import text_pb2

from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, within_patience
from tests.fakes.sessions import token_ids

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"max_texts": 4}
TEXTS = ["win a prize", "lunch now"]


async def post(served: Served, path: str, **fields: Any) -> Answer:
    return await within_patience(ask(served, "POST", path, fields))


async def posted(served: Served, path: str, **fields: Any) -> Any:
    answer = await post(served, path, **fields)
    assert answer.status == 200, answer.body
    return answer.json


async def vectors_of(served: Served, texts: list[str]) -> np.ndarray:
    answer = await served.text.Embed(text_pb2.EmbedRequest(model="mini", texts=texts))
    return np.array([result.values for result in answer.results], np.float32)


@pytest.mark.parametrize("base", ["/v1", "/openai/v1", "/models/mini/v1"])
async def test_embeddings_are_the_same_bits_as_numbers_and_in_base64(
    served: Served, base: str
) -> None:
    fields = {"model": "mini", "input": TEXTS}
    expected = await vectors_of(served, TEXTS)
    plain = await posted(served, f"{base}/embeddings", **fields)
    packed = await posted(served, f"{base}/embeddings", **fields, encoding_format="base64")
    numbers = np.array([each["embedding"] for each in plain["data"]], np.float32)
    bits = np.array(
        [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in packed["data"]]
    )
    np.testing.assert_array_equal(numbers, expected)
    np.testing.assert_array_equal(bits, expected)
    assert [(each["object"], each["index"]) for each in plain["data"]] == [
        ("embedding", 0),
        ("embedding", 1),
    ]
    num_tokens = sum(len(token_ids(text)) for text in TEXTS)
    assert plain["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert (plain["object"], plain["model"]) == ("list", "mini")


async def test_one_text_is_a_list_of_one(served: Served) -> None:
    answer = await posted(served, "/v1/embeddings", model="mini", input=TEXTS[0], dimensions=4)
    expected = await vectors_of(served, TEXTS[:1])
    np.testing.assert_array_equal(np.float32(answer["data"][0]["embedding"]), expected[0])


async def test_a_long_text_is_refused_or_cut(served: Served) -> None:
    long = " ".join(["prize"] * 20)
    refused = await post(served, "/v1/embeddings", model="mini", input=long)
    assert refused.status == 400
    error = refused.json["error"]
    assert error["message"] == (
        "input[0] has 22 tokens, the model takes at most 12: shorten it, or set "
        "truncate_prompt_tokens to -1"
    )
    assert (error["param"], error["code"]) == ("input", "context_length_exceeded")
    cut = await posted(
        served, "/v1/embeddings", model="mini", input=long, truncate_prompt_tokens=-1
    )
    assert cut["usage"]["prompt_tokens"] == 12


@pytest.mark.parametrize(
    ("change", "param", "text"),
    [
        ({"input": []}, "input", "input has 0 elements, expected 1 to 4"),
        ({"input": ["a"] * 5}, "input", "input has 5 elements, expected 1 to 4 (--max-texts)"),
        ({"input": [[1, 2], "a"]}, "input", "input has texts and token ids, expected one of them"),
        ({"input": [[1, 2], [3, 999]]}, "input", "input[1] has 999, expected 0 to "),
        ({"input": [1, 2**32]}, "input", "input[1] is 4294967296, expected a token id"),
        ({"input": [[]]}, "input", "input[0] has 0 token ids, expected 1 or more"),
        ({"input": [1] * 13}, "input", "input[0] has 13 tokens, the model takes at most 12"),
        ({"input": [[1]] * 5}, "input", "input has 5 elements, expected 1 to 4 (--max-texts)"),
        (
            {"input": None},
            "input",
            "input is null, expected a text, token ids, a list of texts, or",
        ),
        ({"dimensions": 3}, "dimensions", "dimensions is 3, expected 4: "),
        ({"encoding_format": "hex"}, "encoding_format", "encoding_format is 'hex', expected float"),
        ({"truncate_prompt_tokens": 7}, "truncate_prompt_tokens", "truncate_prompt_tokens is not"),
        ({"model": "spam"}, "model", "model 'spam' does text-classification, it cannot embed"),
    ],
)
async def test_what_cannot_be_embedded_is_refused(
    served: Served, change: dict[str, Any], param: str | None, text: str
) -> None:
    answer = await post(served, "/v1/embeddings", **{"model": "mini", "input": TEXTS} | change)
    assert answer.status == 400
    assert answer.json["error"]["param"] == param
    assert answer.json["error"]["message"].startswith(text)


@pytest.mark.parametrize("base", ["", "/v1", "/openai/v1", "/models/tale", "/models/tale/v1"])
async def test_tokens_and_texts_are_each_other(served: Served, base: str) -> None:
    found = await posted(
        served, f"{base}/tokenize", model="tale", prompt="once", return_token_strs=True
    )
    assert found == {
        "count": 4,
        "max_model_len": 64,
        "tokens": list(b"once"),
        "token_strs": list("once"),
    }
    answer = await posted(served, f"{base}/detokenize", model="tale", tokens=found["tokens"])
    assert answer == {"prompt": "once"}


async def test_special_tokens_are_left_out_on_request(served: Served) -> None:
    whole = await posted(served, "/tokenize", model="spam", prompt="win a prize")
    assert whole["tokens"] == token_ids("win a prize")
    bare = await posted(
        served, "/tokenize", model="spam", prompt="win a prize", add_special_tokens=False
    )
    assert bare["tokens"] == whole["tokens"][1:-1]


async def test_a_tokenizer_tells_what_ends_a_text(served: Served) -> None:
    answer = await ask(served, "GET", "/models/tale/tokenizer_info")
    assert answer.json["eos_token"] == "<|endoftext|>"
    assert answer.json["model_max_length"] == 64
    assert (await ask(served, "GET", "/models/nobody/tokenizer_info")).status == 404
    assert (await ask(served, "GET", "/tokenizer_info?model=tale")).json == answer.json
    assert (await ask(served, "GET", "/tokenizer_info?model=nobody")).status == 404


async def test_pairs_are_scored_by_the_model_or_by_their_vectors(served: Served) -> None:
    pairs = text_pb2.ScorePairsRequest(
        model="match", texts=["win"] * 2, text_pairs=["prize", "lunch now"]
    )
    expected = [result.score for result in (await served.text.ScorePairs(pairs)).results]
    for one, other in (("queries", "documents"), ("text_1", "text_2"), ("data_1", "data_2")):
        fields: dict[str, Any] = {one: "win", other: ["prize", "lunch now"]}
        answer = await posted(served, "/score", model="match", **fields)
        assert [each["score"] for each in answer["data"]] == expected
    for is_active in (True, False):
        pairs.raw_scores = not is_active
        expected = [result.score for result in (await served.text.ScorePairs(pairs)).results]
        answer = await posted(served, "/score", model="match", **fields, use_activation=is_active)
        assert [each["score"] for each in answer["data"]] == expected
    vectors = await vectors_of(served, [*TEXTS, "cash"])
    cosines = vectors @ vectors.T / np.outer(*2 * (np.linalg.norm(vectors, axis=1),))
    answer = await posted(served, "/v1/score", model="mini", text_1=TEXTS, text_2=["cash"] * 2)
    found = [each["score"] for each in answer["data"]]
    np.testing.assert_allclose(found, cosines[:2, 2], atol=1e-6)


async def test_classes_have_a_probability_each_in_the_models_order(served: Served) -> None:
    request = text_pb2.ClassifyRequest(model="spam", texts=TEXTS, all_scores=True)
    expected = (await served.text.Classify(request)).results
    listed = (await served.text.ListModels(text_pb2.ListModelsRequest())).models
    labels = next(list(model.labels) for model in listed if model.name == "spam")
    answer = await posted(served, "/classify", model="spam", input=TEXTS)
    for found, result in zip(answer["data"], expected, strict=True):
        assert found["label"] == result.labels[0].label
        assert found["num_classes"] == len(labels)
        scores = {entry.label: entry.score for entry in result.labels}
        assert dict(zip(labels, found["probs"], strict=True)) == scores


LONG = " ".join(["prize"] * 20)


@pytest.mark.parametrize(
    ("path", "fields", "text", "param"),
    [
        ("/classify", {"model": "spam", "input": ["a", LONG]}, "input[1] has 22", "input"),
        (
            "/score",
            {"model": "match", "text_1": "a", "text_2": ["b", LONG]},
            "text_2[1] with its text_1 has 24",
            "text_2",
        ),
        (
            "/score",
            {"model": "mini", "text_1": ["a", LONG], "text_2": ["b", "a"]},
            "text_1[1] has 22",
            "text_1",
        ),
    ],
)
async def test_a_long_text_is_refused_by_the_name_of_its_field_or_cut(
    served: Served, path: str, fields: dict[str, Any], text: str, param: str
) -> None:
    answer = await post(served, path, **fields)
    error = answer.json["error"]
    assert (answer.status, error["param"], error["code"]) == (
        400,
        param,
        "context_length_exceeded",
    )
    assert error["message"].startswith(f"{text} tokens, the model takes at most ")
    assert error["message"].endswith(": shorten it, or set truncate_prompt_tokens to -1")
    await posted(served, path, **fields, truncate_prompt_tokens=-1)
    other = await post(served, path, **fields, truncate_prompt_tokens=3)
    assert other.json["error"]["param"] == "truncate_prompt_tokens"


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        ("/score", {"text_1": "a"}, "text_2 is missing"),
        ("/score", {}, "the request has 0 pairs of fields, expected queries and documents or "),
        (
            "/score",
            {"text_1": ["a", "b"], "text_2": ["c"]},
            "text_1 has 2 texts, expected 1 or as many as text_2, which has 1",
        ),
        ("/score", {"text_1": "a", "text_2": 3}, "text_2 is 3, expected a text or a list of texts"),
        ("/score", {"text_1": "a", "text_2": ["b", 3]}, "text_2[1] is 3, expected a text"),
        ("/classify", {"input": "a"}, "model 'match' does pair-scoring, it cannot classify"),
        ("/tokenize", {}, "prompt is missing"),
        ("/tokenize", {"prompt": "a", "messages": []}, "messages stand in place of prompt"),
        ("/tokenize", {"messages": [], "add_special_tokens": True}, "add_special_tokens is not"),
        ("/tokenize", {"messages": [], "chat_template": "{{ 1 }}"}, "chat_template is not supp"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a"}]}, "model 'match' takes no"),
        ("/detokenize", {"tokens": [-1]}, "tokens has -1, expected 0 to 4294967295"),
        ("/detokenize", {"tokens": [99]}, "tokens has 99, which the vocabulary lacks"),
    ],
)
async def test_what_cannot_be_scored_is_refused(
    served: Served, path: str, fields: dict[str, Any], text: str
) -> None:
    answer = await post(served, path, model="match", **fields)
    assert answer.status == 400
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert answer.json["error"]["message"].startswith(text)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", b'{"model": "mini", "input": "\xff"}', "input"),
        ("/classify", b'{"model": "spam", "input": ["\xff"]}', "input"),
        ("/score", b'{"model": "match", "text_1": "a", "text_2": "\xff"}', "text_2"),
    ],
)
async def test_a_text_that_is_no_utf8_is_refused(
    served: Served, path: str, body: bytes, param: str
) -> None:
    answer = await ask(served, "POST", path, body)
    assert answer.status == 400
    assert answer.json["error"]["param"] == param
    assert answer.json["error"]["message"].startswith(
        f"{param} is not UTF-8: a text has the byte 0xff"
    )


async def test_below_a_models_address_only_it_is_listed(served: Served) -> None:
    every = await ask(served, "GET", "/v1/models")
    assert len(every.json["data"]) > 1
    one = await ask(served, "GET", "/models/mini/v1/models")
    assert [model["id"] for model in one.json["data"]] == ["mini"]
    assert (await ask(served, "GET", "/models/mini/v1/models/mini")).json["id"] == "mini"
    for path in ("/models/mini/v1/models/spam", "/models/nobody/v1/models"):
        assert (await ask(served, "GET", path)).status == 404


async def test_token_ids_are_embedded_as_they_are(served: Served) -> None:
    """As one row or several; those of a text with its special tokens give the text's vector."""
    listed = [await posted(served, "/tokenize", model="mini", prompt=text) for text in TEXTS]
    rows = [each["tokens"] for each in listed]
    of_texts = await posted(served, "/v1/embeddings", model="mini", input=TEXTS)
    of_ids = await posted(served, "/v1/embeddings", model="mini", input=rows)
    assert of_ids["data"] == of_texts["data"]
    assert of_ids["usage"] == of_texts["usage"]
    one = await posted(served, "/v1/embeddings", model="mini", input=rows[0])
    assert one["data"] == of_texts["data"][:1]


@pytest.mark.parametrize("length", [-1, 12, 13])
async def test_too_many_token_ids_are_cut_on_request(served: Served, length: int) -> None:
    """To the model's 12 tokens, which clients read from `max_model_len`; or to no fewer."""
    fields = {"model": "mini", "input": [5] * 20}
    found = await posted(served, "/v1/embeddings", **fields, truncate_prompt_tokens=length)
    assert found["usage"]["prompt_tokens"] == 12


async def test_foreign_ids_are_refused_with_the_switch_of_their_client(served: Served) -> None:
    refused = await post(served, "/v1/embeddings", model="mini", input=[[9_999]])
    assert "check_embedding_ctx_length is False" in refused.json["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/classify", "/tokenize", "/rerank"])
@pytest.mark.parametrize(
    ("text", "half"),
    [
        (b"\\ud800", "\\ud800"),
        (b"\\\\\\udfff a", "\\udfff"),
        (b"\\ud83d\\ude00 \\ud83d a", "\\ud83d"),
        (b"a \\uD9aa\\ud9AB", "\\uD9aa"),
    ],
)
async def test_a_half_of_a_surrogate_pair_is_named_with_its_place(
    served: Served, path: str, text: bytes, half: str
) -> None:
    body = b'{"model": "mini", "input": "%b"}' % text
    answer = await ask(served, "POST", path, body)
    place = body.rindex(half.encode())
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith(
        f"the body has a half of a surrogate pair: {half} at byte {place} "
    )
