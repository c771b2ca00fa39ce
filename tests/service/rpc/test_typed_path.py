"""The path that every method of the typed API takes: found, counted, admitted, queued, answered.

What a method answers is in the file of its task; here are the claims that hold for all of them.
"""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import StatusCode

from service.serving.text_model import TextModel
from tests.fakes.every_task import LONG, MAX_CHARACTERS, MAX_TEXTS, VALID, call, every_task
from tests.fakes.serving import Served, eventually, refusal, within_patience
from tests.fakes.tasks import WHITE

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVE, SETTINGS = every_task, {"max_queue_requests": 1}
METHODS = [method for method in VALID if method != "GenerateUnary"]
RUNNING = [method for method in METHODS if method != "Tokenize"]  # which waits behind no run
OF_TEXTS = [method for method in METHODS if "texts" in VALID[method]]
CUTTING = [method for method in OF_TEXTS if method != "Tokenize"]  # nothing is too long for it
NOT_FOUND = "Request for unknown model: '{}' is not found"
NO_NUMBER = (
    "failed to get model version from specified version string 'x' (details: stol), "
    "version should be an integral value > 0"
)
# A model of another task for each method, and what it says.
OTHERS = {
    "Classify": ("mini", "model 'mini' does embedding, it cannot classify"),
    "Embed": ("spam", "model 'spam' does text-classification, it cannot embed"),
    "Similarity": ("deep", "model 'deep' does features, it cannot embed"),
    "ScorePairs": ("spam", "model 'spam' does text-classification, it cannot score pairs"),
    "Rerank": ("spam", "model 'spam' does text-classification, it cannot score pairs"),
    "FillMask": ("spam", "model 'spam' does text-classification, it cannot fill masks"),
    "ClassifyTokens": ("asks", "model 'asks' does question-answering, it cannot classify tokens"),
    "Answer": ("tags", "model 'tags' does token-classification, it cannot answer questions"),
    "ExtractFeatures": ("mini", "model 'mini' does embedding, it cannot extract features"),
    "Attend": ("tale", "model 'tale' does text-generation, it cannot show its attention"),
    "ClassifyImage": ("spam", "model 'spam' cannot classify images"),
    "AttendImage": ("light", "model 'light' cannot show its attention to images"),
}
OF_IMAGES = {
    "ClassifyImage": "cannot classify images",
    "AttendImage": "cannot show its attention to images",
}


def num_batches(served: Served) -> int:
    """How often any model ran."""
    return sum(len(session.batches) for session in served.sessions)


async def hold(served: Served, method: str) -> "asyncio.Task[Any]":
    """Keep the model of a method busy with one valid request, until it is released."""
    session = served.sessions[VALID[method]["model"]]
    session.hold()
    running = asyncio.create_task(within_patience(call(served, method)))
    await asyncio.to_thread(session.wait_for_runs, 1)
    return running


async def release(served: Served, method: str, *running: "asyncio.Task[Any]") -> None:
    served.release(VALID[method]["model"])
    await within_patience(asyncio.gather(*running))


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_answers_with_the_model_its_version_and_how_long_it_took(
    served: Served, method: str
) -> None:
    found = await call(served, method)
    assert (found.model, found.version) == (VALID[method]["model"], "1")
    assert found.timings.total_seconds > 0
    if method in CUTTING and method != "Similarity":
        assert found.num_tokens == sum(result.num_tokens for result in found.results)
        assert not any(result.is_truncated for result in found.results)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"model": "nobody"}, StatusCode.NOT_FOUND, NOT_FOUND.format("nobody")),
        ({"model": ""}, StatusCode.NOT_FOUND, NOT_FOUND.format("")),
        (
            {"version": "7"},
            StatusCode.NOT_FOUND,
            "Request for unknown model: '{}' version 7 is not found",
        ),
        ({"version": "x"}, StatusCode.INVALID_ARGUMENT, NO_NUMBER),
    ],
    ids=["unknown model", "no model", "unknown version", "no number"],
)
async def test_a_model_or_version_that_is_not_served_is_named(
    served: Served, method: str, fields: dict[str, Any], code: StatusCode, text: str
) -> None:
    expected = text.replace("'{}'", f"'{VALID[method]['model']}'")
    assert await refusal(call(served, method, **fields)) == (code, expected)
    assert num_batches(served) == 0


@pytest.mark.parametrize("method", OTHERS)
async def test_a_model_of_another_task_says_what_it_does(served: Served, method: str) -> None:
    model, text = OTHERS[method]
    expected = StatusCode.FAILED_PRECONDITION, text
    assert await refusal(call(served, method, model=model)) == expected
    assert num_batches(served) == 0


@pytest.mark.parametrize("method", METHODS)
async def test_a_model_that_takes_tensors_says_so(served: Served, method: str) -> None:
    text = OF_IMAGES.get(method, "takes tensors, not texts")
    expected = StatusCode.FAILED_PRECONDITION, f"model 'simple' {text}"
    assert await refusal(call(served, method, model="simple")) == expected


@pytest.mark.parametrize("method", [*OF_TEXTS, "ClassifyImage"])
@pytest.mark.parametrize("count", [0, MAX_TEXTS + 1])
async def test_a_request_has_one_text_or_image_or_more_within_the_server_s_number(
    served: Served, method: str, count: int
) -> None:
    name, item = ("texts", "[MASK]") if method in OF_TEXTS else ("images", WHITE)
    text = f"{name} has {count} elements, expected 1 to {MAX_TEXTS}" + " (--max-texts)" * (
        count > 0
    )
    items: dict[str, Any] = {name: [item] * count}
    assert await refusal(call(served, method, **items)) == (StatusCode.INVALID_ARGUMENT, text)
    assert num_batches(served) == 0


@pytest.mark.parametrize("method", OF_TEXTS)
async def test_a_text_of_too_many_characters_is_refused_by_its_place(
    served: Served, method: str
) -> None:
    count = MAX_CHARACTERS + 1
    text = f"text 0 has {count} characters, the server takes at most {MAX_CHARACTERS}"
    call_ = call(served, method, texts=["x" * count])
    assert await refusal(call_) == (StatusCode.INVALID_ARGUMENT, text)
    assert num_batches(served) == 0


@pytest.mark.parametrize("method", CUTTING)
async def test_a_text_of_too_many_tokens_is_refused_or_cut_where_a_request_says_so(
    served: Served, method: str
) -> None:
    texts = ["a [MASK]", f"[MASK] {LONG}"]
    code, text = await refusal(call(served, method, texts=texts))
    assert code is StatusCode.INVALID_ARGUMENT
    model = served.app.repository.find(VALID[method]["model"])
    assert isinstance(model, TextModel)
    most = model.manifest.max_tokens
    assert text.startswith("text 1 has ")
    limit = f"the model takes at most {most}: shorten it, or ask for truncation"
    assert text.endswith(f" tokens, {limit}")
    assert num_batches(served) == 0
    found = await call(served, method, texts=texts, truncate=True)
    if method != "Similarity":
        short, long = found.results
        assert (short.is_truncated, long.is_truncated) == (False, True)
        assert long.num_tokens == most


@pytest.mark.parametrize("method", CUTTING)
async def test_the_texts_of_a_request_share_a_batch(served: Served, method: str) -> None:
    """Texts of one word and of two, padded to the longer one."""
    await call(served, method, texts=["[MASK]", "win [MASK]"])
    (batch,) = served.sessions[VALID[method]["model"]].batches
    assert len(batch["input_ids"]) == 2


@pytest.mark.parametrize("method", RUNNING)
async def test_a_full_queue_exhausts_resources_and_says_when_to_come_back(
    served: Served, method: str
) -> None:
    """One runs, one waits, the bound is 1; the trailer is the one that gRFC A6 defines."""
    running = await hold(served, method)
    waiting = asyncio.create_task(within_patience(call(served, method)))
    model = VALID[method]["model"]
    await eventually(lambda: served.num_waiting(model) > 0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await within_patience(call(served, method))
    assert caught.value.code() is StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.details() == "Exceeds maximum queue size"
    assert int(dict(caught.value.trailing_metadata() or ())["grpc-retry-pushback-ms"]) > 0
    await release(served, method, running, waiting)
    assert (await call(served, method)).model == model


@pytest.mark.parametrize("method", METHODS)
async def test_other_refusals_carry_no_hint_to_come_back(served: Served, method: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(served, method, model="nobody")
    keys = [key for key, _ in caught.value.trailing_metadata() or ()]
    assert "grpc-retry-pushback-ms" not in keys


@pytest.mark.parametrize("method", RUNNING)
@pytest.mark.parametrize("leaves", [False, True], ids=["deadline", "client leaves"])
async def test_a_request_that_ends_in_the_queue_is_taken_out_of_it(
    served: Served, method: str, leaves: bool
) -> None:
    """By its deadline, or since its client cancelled it: nothing runs for it."""
    running = await hold(served, method)
    model = VALID[method]["model"]
    waiting = call(served, method, timeout=None if leaves else 0.5)
    await eventually(lambda: served.num_waiting(model) > 0)
    if leaves:
        waiting.cancel()
    else:
        code, _ = await refusal(waiting)
        assert code is StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: served.num_waiting(model) == 0)
    num_runs = len(served.sessions[model].batches)
    await release(served, method, running)
    assert len(served.sessions[model].batches) == num_runs


@pytest.mark.parametrize("method", RUNNING)
async def test_a_session_that_raises_is_an_internal_error_with_its_text(
    served: Served, method: str
) -> None:
    session = served.sessions[VALID[method]["model"]]
    good = session.compute
    session.compute = lambda _: {}
    code, text = await refusal(call(served, method))
    session.compute = good
    output = session.signature.outputs[0]
    assert (code, text) == (StatusCode.INTERNAL, f"KeyError: '{output.name}'")


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_of_more_bytes_than_the_server_takes_is_refused(
    served: Served, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.app._admission, "_max_bytes", 1)
    code, text = await refusal(call(served, method))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text.endswith(" bytes, the server takes at most 1 in flight")
    assert num_batches(served) == 0


@pytest.mark.parametrize("method", RUNNING)
async def test_answered_and_refused_requests_are_counted(served: Served, method: str) -> None:
    """A refusal is counted once the model is known and its work has begun."""

    def counts() -> tuple[int, int]:
        with served.app.repository.find(VALID[method]["model"]).statistics() as statistics:
            return statistics.success.count, statistics.fail.count

    success, fail = counts()
    await call(served, method)
    assert counts() == (success + 1, fail)
    wrong: dict[str, dict[str, Any]] = {
        "ClassifyImage": {"images": [b"a text"]},
        "AttendImage": {"image": b"a text"},
        "Answer": {"question": ""},
        "Rerank": {"documents": [LONG]},
        "Attend": {"text": LONG},
    }
    await refusal(call(served, method, **wrong.get(method, {"texts": [LONG]})))
    assert counts() == (success + 1, fail + 1)
