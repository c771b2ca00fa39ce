"""`/v1/completions`: whole and streamed answers, and every way to be refused."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from service.errors import ModelFailed
from service.generation.choosing.sampling import logprobs_of
from tests.fakes.every_task import every_task
from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, eventually, serving, within_patience
from tests.fakes.sessions import greedy_text, next_id, next_logits, prompt_ids

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"max_texts": 4}
GREEDY: dict[str, Any] = {"model": "tale", "prompt": "once", "temperature": 0, "max_tokens": 10}
SAMPLED: dict[str, Any] = {"model": "tale", "prompt": "once", "max_tokens": 10, "seed": 3}
PATHS = ["/v1/completions", "/openai/v1/completions", "/models/tale/v1/completions"]


async def complete(served: Served, path: str = PATHS[0], **fields: Any) -> Answer:
    return await within_patience(ask(served, "POST", path, fields))


async def completed(served: Served, **fields: Any) -> dict[str, Any]:
    answer = await complete(served, **fields)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


async def texts_of(served: Served, **fields: Any) -> list[str]:
    return [choice["text"] for choice in (await completed(served, **fields))["choices"]]


async def streamed(served: Served, **fields: Any) -> list[Any]:
    """The events of a stream, without the one that says that it is done."""
    answer = await complete(served, **fields, stream=True)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, done, rest = answer.body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def joined(events: Sequence[Any], index: int) -> str:
    choices = [choice for event in events for choice in event["choices"]]
    return "".join(choice["text"] for choice in choices if choice["index"] == index)


@pytest.mark.parametrize("path", PATHS)
async def test_a_greedy_answer_has_the_text_and_exact_counts(served: Served, path: str) -> None:
    answer = (await complete(served, path, **GREEDY)).json
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == "tale"
    assert answer["choices"] == [
        {
            "index": 0,
            "text": greedy_text("once", 10),
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }
    ]
    counts = {"prompt_tokens": 4, "completion_tokens": 10, "total_tokens": 14}
    assert {name: answer["usage"][name] for name in counts} == counts


async def test_a_server_without_models_says_that_it_has_none(tmp_path: Path) -> None:
    async with serving(tmp_path, http_port=0, strict_readiness=False) as empty:
        error = (await complete(empty, prompt="once")).json["error"]
        assert error["message"] == "model is missing, and no model is served"
        assert error["param"] == "model"


async def test_the_path_names_the_model(served: Served) -> None:
    fields = {name: value for name, value in GREEDY.items() if name != "model"}
    answer = await complete(served, PATHS[2], **fields)
    assert answer.json["choices"][0]["text"] == greedy_text("once", 10)
    refused = await complete(served, **fields)
    assert refused.status == 400
    assert refused.json["error"]["param"] == "model"
    assert "model is missing, expected one of " in refused.json["error"]["message"]


async def test_a_prompt_may_be_text_or_ids_one_or_several(served: Served) -> None:
    one, other = prompt_ids("once"), prompt_ids("then")
    expected = [greedy_text("once", 10), greedy_text("then", 10)]
    for prompts in (["once", "then"], [one, other], ["once", other]):
        assert await texts_of(served, **GREEDY | {"prompt": prompts}) == expected
    assert await texts_of(served, **GREEDY | {"prompt": one}) == expected[:1]


async def test_choices_are_numbered_by_prompt_and_then_by_sample(served: Served) -> None:
    alone = [await texts_of(served, **SAMPLED | {"prompt": p, "n": 3}) for p in ("once", "then")]
    found = await completed(served, **SAMPLED | {"prompt": ["once", "then"], "n": 3})
    assert [choice["index"] for choice in found["choices"]] == list(range(6))
    assert [choice["text"] for choice in found["choices"]] == [*alone[0], *alone[1]]
    assert len(set(alone[0])) > 1, "or the order could not be seen"


async def test_without_max_tokens_sixteen_are_generated(served: Served) -> None:
    for absent in ({}, {"max_tokens": None, "stop": None, "logprobs": None, "n": None}):
        fields = {"model": "tale", "prompt": "once", "temperature": 0} | absent
        found = await completed(served, **fields)
        assert found["usage"]["completion_tokens"] == 16


async def test_more_tokens_than_fit_are_as_many_as_fit(served: Served) -> None:
    found = await completed(served, **GREEDY | {"max_tokens": 1_024})
    assert found["usage"]["total_tokens"] == 64, "all of the context"
    assert found["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("num_top", [0, 2, 20])
async def test_log_probabilities_are_lists_by_token(served: Served, num_top: int) -> None:
    found = await completed(served, **GREEDY | {"logprobs": num_top})
    (choice,) = found["choices"]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert logprobs["text_offset"] == list(range(10))
    for token, logprob, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert len(top) == max(1, num_top)
        assert top[token] == logprob == max(top.values())


async def test_tokens_may_be_told_by_their_ids(served: Served) -> None:
    fields = GREEDY | {"logprobs": 1, "return_tokens_as_token_ids": True, "return_token_ids": True}
    (choice,) = (await completed(served, **fields))["choices"]
    ids = prompt_ids(greedy_text("once", 10))
    assert choice["token_ids"] == ids
    assert choice["logprobs"]["tokens"] == [f"token_id:{token_id}" for token_id in ids]


def expected_logprobs(prompt: str) -> list[float]:
    """Of each token of a prompt but the first."""
    ids = prompt_ids(prompt)
    return [
        logprobs_of(next_logits(ids[:place]), ids[place], 0).logprob for place in range(1, len(ids))
    ]


@pytest.mark.parametrize("prompt", ["once", [prompt_ids("once")]])
@pytest.mark.parametrize("max_tokens", [0, 1, 10])
async def test_an_echo_has_the_log_probabilities_of_the_prompt(
    served: Served, prompt: Any, max_tokens: int
) -> None:
    """As lm-eval reads them: the prompt's tokens and then the output's, a null for the first."""
    fields = GREEDY | {"prompt": prompt, "max_tokens": max_tokens, "echo": True, "logprobs": 1}
    answer = await completed(served, **fields)
    (choice,) = answer["choices"]
    assert choice["text"] == "once" + greedy_text("once", max_tokens)
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == max_tokens
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == list(choice["text"])
    assert logprobs["text_offset"] == list(range(4 + max_tokens))
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["token_logprobs"][1:4] == pytest.approx(expected_logprobs("once"), rel=1e-6)
    found = zip(
        *(logprobs[name][1:] for name in ("tokens", "token_logprobs", "top_logprobs")), strict=True
    )
    ids = prompt_ids(choice["text"])
    for place, (token, logprob, top) in enumerate(found, 1):
        assert top[token] == logprob
        is_greedy = next_id(ids[:place]) == ids[place]
        assert (logprob == max(top.values())) == is_greedy


async def test_a_prompt_is_scored_without_an_echo(served: Served) -> None:
    (choice,) = (await completed(served, **GREEDY | {"prompt_logprobs": 2}))["choices"]
    first, *others = choice["prompt_logprobs"]
    assert first is None
    assert choice["text"] == greedy_text("once", 10)
    assert choice["logprobs"] is None
    ids = prompt_ids("once")
    for place, (entries, logprob) in enumerate(
        zip(others, expected_logprobs("once"), strict=True), 1
    ):
        assert entries[str(ids[place])]["logprob"] == pytest.approx(logprob, rel=1e-6)
        assert entries[str(ids[place])]["decoded_token"] == "once"[place]
        best = entries[str(next_id(ids[:place]))]
        assert best["rank"] == 1
        assert sum(each["rank"] is not None for each in entries.values()) == 2


async def test_each_score_has_the_number_of_tokens_that_its_field_requests(served: Served) -> None:
    fields = GREEDY | {"echo": True, "logprobs": 0, "prompt_logprobs": 3}
    (choice,) = (await completed(served, **fields))["choices"]
    assert [len(top) for top in choice["logprobs"]["top_logprobs"][1:]] == [1] * 13
    assert min(len(entries) for entries in choice["prompt_logprobs"][1:]) >= 3


async def test_a_stream_has_no_place_for_vllm_s_prompt_logprobs(served: Served) -> None:
    answer = await complete(served, **GREEDY, prompt_logprobs=1, stream=True)
    assert answer.status == 400
    assert answer.json["error"]["param"] == "prompt_logprobs"


@pytest.mark.parametrize(
    "fields",
    [
        GREEDY,
        GREEDY | {"logprobs": 2},
        GREEDY | {"echo": True},
        GREEDY | {"echo": True, "logprobs": 2},
        SAMPLED | {"echo": True, "logprobs": 1, "n": 3},
        GREEDY | {"stop": greedy_text("once", 10)[4:7]},
        SAMPLED | {"n": 3},
        SAMPLED | {"prompt": ["once", "then"], "n": 2, "logprobs": 1},
    ],
)
async def test_a_stream_joined_is_the_whole_answer(served: Served, fields: dict[str, Any]) -> None:
    whole, events = await completed(served, **fields), await streamed(served, **fields)
    heads = {
        tuple(event[name] for name in ("id", "object", "created", "model")) for event in events
    }
    assert len(heads) == 1
    assert all("usage" not in event and event["choices"] for event in events)
    for choice in whole["choices"]:
        index = choice["index"]
        parts = [c for event in events for c in event["choices"] if c["index"] == index]
        assert joined(events, index) == choice["text"]
        ends = [part["finish_reason"] for part in parts if part["finish_reason"]]
        assert ends == [choice["finish_reason"]] == [parts[-1]["finish_reason"]]
        if choice["logprobs"]:
            for name, values in choice["logprobs"].items():
                streamed_values = [
                    v for part in parts if part["logprobs"] for v in part["logprobs"][name]
                ]
                assert streamed_values == values


async def test_a_stream_tells_usage_only_when_it_is_asked_to(served: Served) -> None:
    plain = (await completed(served, **GREEDY))["usage"]
    events = await streamed(served, **GREEDY, stream_options={"include_usage": True})
    *texts, last = events
    assert last["choices"] == []
    assert {name: last["usage"][name] for name in ("prompt_tokens", "completion_tokens")} == {
        "prompt_tokens": plain["prompt_tokens"],
        "completion_tokens": plain["completion_tokens"],
    }
    assert all(event["usage"] is None for event in texts)
    running = {"include_usage": True, "continuous_usage_stats": True}
    events = await streamed(served, **GREEDY, stream_options=running)
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert counts[-1] == 10
    assert {event["usage"]["prompt_tokens"] for event in events} == {4}
    assert await streamed(served, **GREEDY, stream_options={})
    for off in ({}, {"include_usage": False}):
        events = await streamed(
            served, **GREEDY, stream_options=running | {"include_usage": None} | off
        )
        assert not any("usage" in event for event in events)


async def test_stop_texts_end_the_output_and_are_not_in_it(served: Served) -> None:
    text = greedy_text("once", 10)
    for stop in (text[4:7], ["never", text[4:7]]):
        (choice,) = (await completed(served, **GREEDY | {"stop": stop}))["choices"]
        assert (choice["text"], choice["finish_reason"]) == (text[:4], "stop")
        assert choice["stop_reason"] == text[4:7]


async def test_a_bias_forces_a_token_and_a_ban_forbids_it(served: Served) -> None:
    first = greedy_text("once", 1)
    (forced,) = await texts_of(served, **GREEDY | {"logit_bias": {str(ord("q")): 100}})
    assert forced == "q" * 10
    (without,) = await texts_of(served, **GREEDY | {"logit_bias": {str(ord(first)): -100}})
    assert first not in without


async def test_the_same_seed_is_the_same_text(served: Served) -> None:
    fields = SAMPLED | {"max_tokens": 30}
    assert await texts_of(served, **fields) == await texts_of(served, **fields)
    assert await texts_of(served, **fields) != await texts_of(served, **fields | {"seed": 4})


async def test_the_best_of_several_are_those_with_the_likeliest_tokens(served: Served) -> None:
    found = await completed(served, **SAMPLED | {"n": 8, "logprobs": 0})
    means = {
        choice["text"]: sum(choice["logprobs"]["token_logprobs"]) / 10
        for choice in found["choices"]
    }
    best = sorted(means, key=lambda text: -means[text])[:2]
    assert await texts_of(served, **SAMPLED | {"n": 2, "best_of": 8}) == best


async def test_unknown_fields_are_ignored(served: Served) -> None:
    fields = GREEDY | {"num_ctx": 9, "user": "me", "store": False, "metadata": {"a": "b"}}
    assert await texts_of(served, **fields) == [greedy_text("once", 10)]


REFUSED: list[tuple[dict[str, Any], str | None, str]] = [
    ({"model": "nobody"}, "model", "Request for unknown model: 'nobody' is not found"),
    ({"model": "spam"}, "model", "model 'spam' does text-classification, it cannot generate"),
    ({"prompt": ""}, "prompt", "the prompt has 0 tokens, the model takes 1 to 63"),
    ({"prompt": []}, "prompt", "prompt has 0 elements, expected 1 to 4"),
    ({"prompt": ["a"] * 5}, "prompt", "prompt has 5 elements, expected 1 to 4 (--max-texts)"),
    ({"prompt": [257]}, "prompt", "the prompt has token id 257, expected 0 to 256"),
    ({"prompt": [-1]}, "prompt", "prompt[0] is -1, expected a token id"),
    ({"prompt": {"text": "a"}}, "prompt", "prompt is an object, expected a text, token ids, a l"),
    ({"prompt": 5}, "prompt", "prompt is 5, expected a text, token ids, a list of texts, or a l"),
    ({"prompt": ["a", 3]}, "prompt", "prompt[1] is 3, expected a text or a list of token ids"),
    ({"prompt": [[1], [2, 0.5]]}, "prompt", "prompt[1][1] is 0.5, expected a token id"),
    ({"prompt": [[1], []]}, "prompt", "prompt[1] has 0 token ids, expected 1 or more"),
    ({"prompt": [1, None]}, "prompt", "prompt[1] is null, expected a token id"),
    ({"prompt": "x" * 64}, "prompt", "the prompt has 64 tokens, the model takes 1 to 63"),
    ({"max_tokens": 0}, "max_tokens", "max_tokens is 0, expected 1 to 1048576"),
    ({"max_tokens": -1}, "max_tokens", "max_tokens is -1, expected 0 to 1048576"),
    (
        {"stop_token_ids": [-1]},
        "stop_token_ids",
        "stop_token_ids has the token id -1, expected 0 to",
    ),
    ({"seed": 2**64}, "seed", "seed is a whole number of 65 bits, expected 0 to 92233"),
    ({"stream": "yes"}, "stream", "stream is a text, expected true, false or null"),
    ({"priority": 2**32}, "priority", "priority is 4294967296, expected at most 4294967295"),
    ({"best_of": 10**12}, "best_of", "best_of is 1000000000000, expected at most 64"),
    ({"logit_bias": {"9" * 5_000: 1}}, "logit_bias", "logit_bias has the key '999"),
    ({"max_tokens": "ten"}, "max_tokens", "max_tokens is a text, expected a whole number"),
    ({"logprobs": 21}, "logprobs", "logprobs is 21, expected 0 to 20"),
    ({"temperature": -1}, "temperature", "temperature is -1.0, expected 0 to 100"),
    ({"logit_bias": {"a": 1}}, "logit_bias", "logit_bias has the key 'a', expected a token id"),
    (
        {"logit_bias": {"257": 1}},
        "logit_bias",
        "logit_bias has the token id 257, expected 0 to 256",
    ),
    ({"suffix": "end"}, "suffix", "suffix is not supported: "),
    ({"best_of": 2, "n": 3}, "best_of", "best_of is 2, expected at least n, which is 3"),
    ({"best_of": 2, "stream": True}, "best_of", "best_of is larger than n, expected stream to be"),
    (
        {"use_beam_search": True, "n": 17},
        "n",
        "n is 17, expected at most 16 with use_beam_search",
    ),
    (
        {"use_beam_search": True, "n": 2, "best_of": 3},
        "best_of",
        "best_of is 3, expected 2 as n is: with use_beam_search n is also the number of beams",
    ),
    ({"stream_options": {}}, "stream_options", "stream_options is set, expected stream to be true"),
    ({"prompt_logprobs": 21}, "prompt_logprobs", "prompt_logprobs is 21, expected 0 to 20"),
    ({"prompt_logprobs": -1}, "prompt_logprobs", "prompt_logprobs is -1, expected 0 to 20"),
    ({"bad_words": [""]}, "bad_words", "bad_words has a string of 0 characters"),
]


@pytest.mark.parametrize(("change", "param", "text"), REFUSED)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_cannot_be_is_refused_and_the_server_answers_on(
    served: Served, change: dict[str, Any], param: str | None, text: str, stream: bool
) -> None:
    fields = (
        GREEDY | ({"stream": True} if stream and "stream_options" not in change else {}) | change
    )
    answer = await complete(served, **fields)
    assert answer.status == (404 if text.startswith("Request for unknown model") else 400)
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].startswith(text)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert await texts_of(served, **GREEDY) == [greedy_text("once", 10)]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (b'"\xff"', "prompt is not UTF-8: a text has the byte 0xff"),
        (b'["a", "\xff"]', "prompt is not UTF-8: a text has the byte 0xff"),
        (b"[1e999]", "prompt cannot be read: "),
        (b"[%s]" % (b"9" * 5_000), "prompt cannot be read: "),
    ],
)
async def test_a_prompt_that_cannot_be_read_is_refused(
    served: Served, prompt: bytes, text: str
) -> None:
    answer = await ask(served, "POST", PATHS[0], b'{"model": "tale", "prompt": %s}' % prompt)
    assert answer.status == 400
    assert answer.json["error"]["param"] == "prompt"
    assert answer.json["error"]["message"].startswith(text)


@pytest.mark.parametrize("body", [b"", b" \n"])
async def test_an_empty_body_is_called_empty(served: Served, body: bytes) -> None:
    error = (await ask(served, "POST", PATHS[0], body)).json["error"]
    assert error["message"] == "the body is empty, expected a JSON object"
    assert error["code"] == "invalid_json"


@pytest.mark.parametrize("body", [b"[1]", b'"text"', b"7", b"null", b"{", b"", b"\xff"])
async def test_a_body_that_is_no_object_is_refused(served: Served, body: bytes) -> None:
    answer = await ask(served, "POST", PATHS[0], body)
    assert answer.status == 400
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}


async def test_a_model_that_fails_is_an_error_or_the_last_event(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    (decoder,) = served.decoders
    run, num_left = decoder.run, 3

    def fail_soon(*arguments: Any) -> Any:
        nonlocal num_left
        num_left -= 1
        time.sleep(0.05)  # for the tokens before to be written
        if num_left < 0:
            raise ModelFailed("it broke")
        return run(*arguments)

    monkeypatch.setattr(decoder, "run", fail_soon)
    failed = {
        "error": {
            "message": "it broke",
            "type": "server_error",
            "param": None,
            "code": "model_failed",
        }
    }
    answer = await complete(served, **GREEDY, stream=True)
    assert answer.status == 200, "the first tokens have left before it failed"
    *events, done, rest = answer.body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert json.loads(events[-1].removeprefix("data: ")) == failed
    num_left = 0
    whole = await complete(served, **GREEDY)
    assert (whole.status, whole.json) == (500, failed)


async def test_one_of_several_prompts_that_is_refused_ends_all(served: Served) -> None:
    answer = await complete(served, **GREEDY | {"prompt": ["once", "x" * 64, "then"]})
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith("the prompt has 64 tokens")
    await eventually(lambda: served.num_running("tale") + served.num_waiting("tale") == 0)


async def test_chat_is_refused_by_the_name_of_what_is_missing(served: Served) -> None:
    fields = {"model": "tale", "messages": [{"role": "user", "content": "hello"}]}
    for base in ("/v1", "/openai/v1", "/models/tale/v1"):
        answer = await complete(served, f"{base}/chat/completions", **fields)
        assert answer.status == 400
        assert answer.json["error"]["code"] == "no_chat_template"
        assert "model 'tale' has no chat template" in answer.json["error"]["message"]
    unknown = await complete(served, "/v1/chat/completions", **fields | {"model": "nobody"})
    assert unknown.status == 404


async def test_many_at_once_keep_to_themselves(served: Served) -> None:
    prompts = [f"story {n}" for n in range(24)]
    found = await asyncio.gather(
        *(texts_of(served, **GREEDY | {"prompt": prompt}) for prompt in prompts)
    )
    assert found == [[greedy_text(prompt, 10)] for prompt in prompts]


async def test_more_outputs_than_can_ever_wait_are_refused_with_the_limit(tmp_path: Path) -> None:
    async with every_task(tmp_path, http_port=0, max_queue_requests=6, max_texts=99) as served:
        for num_prompts, num_samples in ((7, 1), (3, 3)):
            fields = SAMPLED | {"prompt": ["a"] * num_prompts, "n": num_samples}
            answer = await complete(served, **fields)
            assert answer.status == 400
            assert answer.json["error"]["param"] == "prompt"
            assert "expected at most" in answer.json["error"]["message"]
            assert "--max-queue-requests is 6" in answer.json["error"]["message"]
        assert len(await texts_of(served, **SAMPLED | {"prompt": ["a"] * 3, "n": 2})) == 6


async def test_a_prompt_beyond_the_context_has_openais_code(served: Served) -> None:
    answer = await complete(served, **GREEDY | {"prompt": "x" * 64})
    assert answer.json["error"]["code"] == "context_length_exceeded"
    empty = await complete(served, **GREEDY | {"prompt": ""})
    assert empty.json["error"]["code"] == "invalid_value"
