"""`attendant.v1.GenerationService` over the wire: text as it comes, and every way it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from attendant.v1 import generation_pb2 as pb
from attendant.v1 import generation_pb2_grpc
from attendant.v1 import text_pb2 as text_pb
from grpc import StatusCode

from service.calls.sampling import Sampling
from service.generation.choosing.sampling import logprobs_of
from service.grammars.form import KINDS
from tests.fakes.serving import Served, eventually, refusal, serving, within_patience
from tests.fakes.sessions import (
    END_ID,
    PATIENCE_S,
    greedy_ids,
    greedy_text,
    next_id,
    next_logits,
    prompt_ids,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"max_queue_requests": 4}  # eight sequences may run beside those that wait
PROMPT = "once upon a time"  # 16 tokens of a context of 64
GREEDY = {"temperature": 0.0, "max_tokens": 10}


def request_of(prompt: str = PROMPT, model: str = "tale", **params: Any) -> pb.GenerateRequest:
    sampling = pb.SamplingParams(**GREEDY | params)
    return pb.GenerateRequest(model=model, text=prompt, sampling_params=sampling)


async def collect(call: Any) -> list[pb.GenerateChunk]:
    """All that comes until the end."""
    chunks = []
    while (chunk := await within_patience(call.read())) is not grpc.aio.EOF:
        chunks.append(chunk)
    return chunks


def text_of(chunks: list[pb.GenerateChunk], sample_index: int = 0) -> str:
    return "".join(chunk.text for chunk in chunks if chunk.sample_index == sample_index)


async def is_idle(served: Served) -> None:
    await eventually(lambda: served.num_running("tale") == served.num_waiting("tale") == 0)


async def test_a_stream_gives_the_text_and_at_its_end_the_account(served: Served) -> None:
    """16 tokens of prompt, 10 of output."""
    chunks = await collect(served.generation.Generate(request_of()))
    assert text_of(chunks) == greedy_text(PROMPT, 10)
    ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
    assert ids == greedy_ids(prompt_ids(PROMPT), 10)
    *others, last = chunks
    assert all(not chunk.finish_reason and not chunk.HasField("usage") for chunk in others)
    assert last.finish_reason == pb.FINISH_REASON_LENGTH
    assert (last.model, last.version, last.stop_reason) == ("tale", "1", "")
    assert (last.usage.prompt_tokens, last.usage.output_tokens) == (16, 10)
    timings = last.timings
    assert 0 <= timings.queue_seconds <= timings.time_to_first_token_seconds
    assert timings.time_to_first_token_seconds + 9 * timings.inter_token_seconds == pytest.approx(
        timings.total_seconds, abs=0.05
    )


async def test_text_comes_while_the_model_still_computes(served: Served) -> None:
    """One step may end: the first chunk arrives before the second does."""
    decoder = served.decoders["tale"]
    decoder.hold(after=1)
    call = served.generation.Generate(request_of())
    first = await within_patience(call.read())
    assert greedy_text(PROMPT, 10).startswith(first.text)
    assert not first.finish_reason
    decoder.release()
    rest = await collect(call)
    assert first.text + text_of(rest) == greedy_text(PROMPT, 10)


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 7, "n": 3}])
async def test_stream_and_unary_agree(served: Served, params: dict[str, Any]) -> None:
    """Greedy, and three samples of one seed."""
    request = request_of(**params)
    chunks = await collect(served.generation.Generate(request))
    whole = await served.generation.GenerateUnary(request)
    count = params.get("n", 1)
    assert len(whole.results) == count
    for index, result in enumerate(whole.results):
        own = [chunk for chunk in chunks if chunk.sample_index == index]
        assert result.text == text_of(chunks, index)
        assert list(result.token_ids) == [token for chunk in own for token in chunk.token_ids]
        reasons = [chunk.finish_reason for chunk in own if chunk.finish_reason]
        assert reasons == [result.finish_reason] == [pb.FINISH_REASON_LENGTH]
    assert (whole.model, whole.version) == ("tale", "1")
    assert whole.usage.output_tokens == 10 * count
    assert whole.timings.total_seconds > 0


async def test_samples_of_one_request_differ_and_share_the_prompt(served: Served) -> None:
    whole = await served.generation.GenerateUnary(request_of(temperature=5.0, seed=1, n=4))
    assert len({result.text for result in whole.results}) == 4
    assert whole.usage.prompt_tokens == 16


async def test_another_prompt_that_begins_alike_reuses_what_was_computed(served: Served) -> None:
    """40 tokens are the same; of the second prompt only its end is computed."""
    prompt = "a" * 40
    await served.generation.GenerateUnary(request_of(prompt, max_tokens=1))
    whole = await served.generation.GenerateUnary(request_of(prompt + "b", max_tokens=3))
    assert whole.results[0].text == greedy_text(prompt + "b", 3)
    assert whole.usage.reused_tokens == 40


async def test_token_ids_are_a_prompt_too(served: Served) -> None:
    request = request_of()
    request.token_ids.ids.extend(prompt_ids(PROMPT))
    assert request.WhichOneof("prompt") == "token_ids"
    whole = await served.generation.GenerateUnary(request)
    assert whole.results[0].text == greedy_text(PROMPT, 10)


async def test_the_end_of_text_ends_it_and_is_no_text(served: Served) -> None:
    whole = await served.generation.GenerateUnary(request_of("the end."))
    (result,) = whole.results
    assert (result.text, list(result.token_ids)) == ("", [END_ID])
    assert (result.finish_reason, result.stop_reason) == (pb.FINISH_REASON_STOP, "")


async def test_a_stop_text_cuts_and_is_named(served: Served) -> None:
    text = greedy_text(PROMPT, 10)
    stop = text[4:6]
    before = text[: text.index(stop)]
    chunks = await collect(served.generation.Generate(request_of(stop=["#", stop])))
    assert text_of(chunks) == before
    assert (chunks[-1].finish_reason, chunks[-1].stop_reason) == (pb.FINISH_REASON_STOP, stop)


async def test_a_stop_token_is_named_by_its_id(served: Served) -> None:
    token_id = greedy_ids(prompt_ids(PROMPT), 4)[3]
    whole = await served.generation.GenerateUnary(request_of(stop_token_ids=[token_id]))
    assert whole.results[0].stop_reason == str(token_id)


async def test_log_probabilities_come_as_many_as_asked_best_first(served: Served) -> None:
    whole = await served.generation.GenerateUnary(request_of(logprobs=3, max_tokens=4))
    (result,) = whole.results
    assert [found.id for found in result.logprobs] == list(result.token_ids)
    spelt = b"".join(found.token for found in result.logprobs)
    assert spelt.decode() == result.text
    for found in result.logprobs:
        assert len(found.top) == 3
        assert (found.top[0].id, found.top[0].logprob) == (found.id, found.logprob)
        assert found.HasField("logit")
        assert not any(each.HasField("logit") for each in found.top)
        gaps = [a.logprob - b.logprob for a, b in zip(found.top, found.top[1:], strict=False)]
        assert gaps == pytest.approx([1.0, 1.0], abs=1e-5)
    none = await served.generation.GenerateUnary(request_of(max_tokens=4))
    assert not none.results[0].logprobs


@pytest.mark.parametrize("max_tokens", [0, 4])
async def test_a_prompt_is_scored_once_whole_or_in_the_first_chunk(
    served: Served, max_tokens: int
) -> None:
    request = request_of(prompt_logprobs=2, max_tokens=max_tokens)
    whole = await served.generation.GenerateUnary(request)
    first, *others = whole.prompt_logprobs
    ids = prompt_ids(PROMPT)
    assert first == pb.TokenLogprob(id=ids[0], token=PROMPT[:1].encode())
    for place, found in enumerate(others, 1):
        expected = logprobs_of(next_logits(ids[:place]), ids[place], 2)
        assert (found.id, found.token) == (ids[place], PROMPT[place : place + 1].encode())
        assert found.logprob == pytest.approx(expected.logprob, rel=1e-6)
        assert [each.id for each in found.top] == [token_id for token_id, _ in expected.top]
    assert len(others) == len(ids) - 1
    chunks = await collect(served.generation.Generate(request))
    assert chunks[0].prompt_logprobs == whole.prompt_logprobs
    assert not any(chunk.prompt_logprobs for chunk in chunks[1:])
    assert text_of(chunks) == whole.results[0].text == greedy_text(PROMPT, max_tokens)
    assert chunks[-1].finish_reason == pb.FINISH_REASON_LENGTH
    assert whole.usage.output_tokens == max_tokens
    assert whole.timings.total_seconds >= whole.timings.time_to_first_token_seconds > 0


async def test_every_parameter_reaches_the_sampler(served: Served) -> None:
    """Banning the favourite, biasing and listing change what is chosen."""
    favourite = next_id(prompt_ids(PROMPT))
    second = 97 + (favourite - 97 + 1) % 26
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, favourite),
        ({"banned_token_ids": [favourite]}, second),
        ({"logit_bias": {second: 10.0}}, second),
        ({"allowed_token_ids": [second]}, second),
    ]
    for params, chosen in cases:
        whole = await served.generation.GenerateUnary(request_of(max_tokens=1, **params))
        assert list(whole.results[0].token_ids) == [chosen]


async def test_the_message_has_a_field_for_every_parameter() -> None:
    """A grammar's kinds stand for the one of the record."""
    names = [field.name for field in pb.SamplingParams.DESCRIPTOR.fields]
    others = ("grammar", "named")
    assert names == [name for name in Sampling.__struct_fields__ if name not in others] + [*KINDS]


async def test_an_unset_parameter_is_the_record_s_default(served: Served) -> None:
    """Without max_tokens: what fits, 48 of the context's 64."""
    request = pb.GenerateRequest(model="tale", text=PROMPT)
    whole = await served.generation.GenerateUnary(request)
    assert whole.usage.output_tokens == 48


async def test_max_tokens_may_be_lowered_to_what_fits(served: Served) -> None:
    """The prompt has 16 tokens of the context's 64; what the model may not end before must fit."""
    for most, count in ((49, 48), (7, 7)):
        request = request_of(fit_max_tokens=True, ignore_eos=True, max_tokens=most)
        whole = await served.generation.GenerateUnary(request)
        assert whole.usage.output_tokens == count
    request = request_of(fit_max_tokens=True, max_tokens=90, min_tokens=50)
    code, text = await refusal(served.generation.GenerateUnary(request))
    assert code is INVALID
    assert text.startswith("min_tokens is 50, expected at most 48: the prompt has 16 tokens")


INVALID = StatusCode.INVALID_ARGUMENT
PRECONDITION = StatusCode.FAILED_PRECONDITION
UNKNOWN = "Request for unknown model:"
OVER = "expected at most 48: the prompt has 16 tokens, and the model takes 64 in all"
TAKES = "the model takes 1 to 63"
# A model that cannot generate: its name and version, the status and the message.
OTHERS: list[tuple[str, str, StatusCode, str]] = [
    ("nope", "", StatusCode.NOT_FOUND, f"{UNKNOWN} 'nope' is not found"),
    ("tale", "7", StatusCode.NOT_FOUND, f"{UNKNOWN} 'tale' version 7 is not found"),
    ("spam", "", PRECONDITION, "model 'spam' does text-classification, it cannot generate"),
    ("simple", "", PRECONDITION, "model 'simple' takes tensors, not prompts"),
]
# A prompt that is refused, and the message.
PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({}, "prompt is missing, expected text, token_ids or conversation"),
    ({"text": ""}, f"the prompt has 0 tokens, {TAKES}"),
    ({"text": "a" * 64}, f"the prompt has 64 tokens, {TAKES}"),
    ({"token_ids": pb.TokenIds()}, f"the prompt has 0 tokens, {TAKES}"),
    ({"token_ids": pb.TokenIds(ids=[1, 257])}, "the prompt has token id 257, expected 0 to 256"),
]
# Sampling parameters that are refused, and the message.
PARAMS: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -1}, "temperature is -1.0, expected 0 to 100"),
    ({"top_k": 2**31}, "top_k is 2147483648, expected 0 to 2147483647"),
    ({"top_p": -0.5}, "top_p is -0.5, expected 0 to 1"),
    ({"min_p": 1.5}, "min_p is 1.5, expected 0 to 1"),
    ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0, expected 0.01 to 100"),
    ({"presence_penalty": 3.0}, "presence_penalty is 3.0, expected -2 to 2"),
    (
        {"max_tokens": 0},
        "max_tokens is 0, expected 1 to 1048576 where prompt_logprobs is not set",
    ),
    ({"max_tokens": 49}, f"max_tokens is 49, {OVER}"),
    ({"logprobs": 51}, "logprobs is 51, expected 0 to 50"),
    ({"prompt_logprobs": 21}, "prompt_logprobs is 21, expected 0 to 20"),
    ({"temperature": 1.0, "n": 0}, "n is 0, expected 1 to 64"),
    ({"seed": 2**63}, "seed is 9223372036854775808, expected 0 to 9223372036854775807"),
    ({"stop": [""]}, "stop has a string of 0 characters, expected 1 to 256"),
    ({"stop_token_ids": [257]}, "stop_token_ids has the token id 257, expected 0 to 256"),
    ({"logit_bias": {3: 101.0}}, "logit_bias of 3 is 101.0, expected -100 to 100"),
]
REFUSED: list[tuple[pb.GenerateRequest, StatusCode, str]] = [
    *(
        (pb.GenerateRequest(model=model, version=version, text="a"), code, text)
        for model, version, code, text in OTHERS
    ),
    *((pb.GenerateRequest(model="tale", **prompt), INVALID, text) for prompt, text in PROMPTS),
    *((request_of(**params), INVALID, text) for params, text in PARAMS),
    (  # max_tokens being open
        pb.GenerateRequest(
            model="tale", text=PROMPT, sampling_params=pb.SamplingParams(min_tokens=49)
        ),
        INVALID,
        f"min_tokens is 49, {OVER}",
    ),
]


@pytest.mark.parametrize(("request_", "code", "text"), REFUSED)
async def test_a_refusal_names_field_value_and_range_by_both_methods(
    served: Served, request_: pb.GenerateRequest, code: StatusCode, text: str
) -> None:
    assert await refusal(served.generation.GenerateUnary(request_)) == (code, text)
    assert await refusal(served.generation.Generate(request_).read()) == (code, text)
    assert served.decoders["tale"].calls == []


@pytest.mark.parametrize("method", ["Classify", "Embed"])
async def test_a_generative_model_does_nothing_else(served: Served, method: str) -> None:
    kind = {"Classify": text_pb.ClassifyRequest, "Embed": text_pb.EmbedRequest}[method]
    call = getattr(served.text, method)(kind(model="tale", texts=["lunch"]))
    assert await refusal(call) == (
        PRECONDITION,
        f"model 'tale' does text-generation, it cannot {method.lower()}",
    )


async def test_a_generative_model_shows_its_tokens_and_its_manifest(served: Served) -> None:
    texts = ["né", "x" * 65]
    found = await served.text.Tokenize(text_pb.TokenizeRequest(model="tale", texts=texts))
    assert [token.id for token in found.results[0].tokens] == prompt_ids("né")
    assert [result.is_too_long for result in found.results] == [False, True]
    listed = await served.text.ListModels(text_pb.ListModelsRequest())
    (tale,) = [model for model in listed.models if model.name == "tale"]
    assert tale == text_pb.Model(
        name="tale",
        version="1",
        task="text-generation",
        precision="fp32",
        max_tokens=64,
        example="once upon a time",
        origin="nowhere",
        eos_token_ids=[END_ID],
        examples=[text_pb.Example(text="once upon a time")],
        vocabulary_size=END_ID + 1,
        grammar_kinds=["json_schema", "regex", "choice", "lark"],
    )


async def start_held(served: Served, count: int = 1) -> list[Any]:
    """`count` streams, whose sequences all have a slot and none of whose steps ends."""
    decoder = served.decoders["tale"]
    decoder.hold()
    calls = [
        served.generation.Generate(request_of(chr(97 + index), max_tokens=40))
        for index in range(count)
    ]
    await asyncio.to_thread(decoder.wait_for_runs, len(decoder.calls) or 1)
    return calls


async def test_a_client_that_cancels_frees_its_slot_within_one_step(served: Served) -> None:
    """The step under way ends, and no other follows."""
    (call,) = await start_held(served)
    decoder = served.decoders["tale"]
    await eventually(lambda: served.num_running("tale") == 1)
    call.cancel()
    await eventually(lambda: served.app._admission.num_inside == 0)
    num_steps = len(decoder.calls)
    decoder.release()
    await is_idle(served)
    assert len(decoder.calls) == num_steps == 1


async def test_a_client_that_disconnects_frees_its_slot_within_one_step(served: Served) -> None:
    """The connection breaks, with no word from the client."""
    decoder = served.decoders["tale"]
    decoder.hold(after=2)
    async with (
        cable_to(served) as (port, cut),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        call = stub.Generate(request_of(max_tokens=40))
        await within_patience(call.read())
        await asyncio.to_thread(decoder.wait_for_runs, 3)
        cut()
        await eventually(lambda: served.app._admission.num_inside == 0)
    decoder.release()
    await is_idle(served)
    assert len(decoder.calls) == 3


@asynccontextmanager
async def cable_to(served: Served) -> AsyncIterator[tuple[int, Callable[[], None]]]:
    """A port that leads to the server's, and what breaks the connections through it."""
    writers: list[asyncio.StreamWriter] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", served.app.grpc_port)
        writers.extend((writer, there[1]))
        await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))

    def cut() -> None:
        for writer in writers:
            writer.transport.abort()

    listener = await asyncio.start_server(connect, "127.0.0.1", 0)
    yield listener.sockets[0].getsockname()[1], cut
    cut()
    listener.close()


@pytest.mark.parametrize("method", ["Generate", "GenerateUnary"])
async def test_a_deadline_ends_a_request_within_one_step(served: Served, method: str) -> None:
    decoder = served.decoders["tale"]
    decoder.hold(after=2)
    call = getattr(served.generation, method)(request_of(max_tokens=40), timeout=0.3)
    ended = collect(call) if method == "Generate" else call
    code, _ = await refusal(ended)
    assert code is StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: served.app._admission.num_inside == 0)
    decoder.release()
    await is_idle(served)
    assert len(decoder.calls) == 3


async def test_a_client_that_leaves_disturbs_no_other(served: Served) -> None:
    leaving, staying = await start_held(served, 2)
    decoder = served.decoders["tale"]
    await eventually(lambda: served.num_running("tale") + served.num_waiting("tale") == 2)
    leaving.cancel()
    decoder.release()
    assert text_of(await collect(staying)) == greedy_text("b", 40)


async def test_a_full_queue_refuses_with_a_hint_and_recovers(served: Served) -> None:
    """One runs in a step that does not end, four wait, and the next is one too many."""
    (call,) = await start_held(served)
    more = [served.generation.Generate(request_of(max_tokens=40)) for _ in range(4)]
    await eventually(lambda: served.num_waiting("tale") == 4)
    last = served.generation.GenerateUnary(request_of())
    assert await refusal(last) == (StatusCode.RESOURCE_EXHAUSTED, "Exceeds maximum queue size")
    assert dict(await last.trailing_metadata())["grpc-retry-pushback-ms"] == "100"
    served.decoders["tale"].release()
    await asyncio.gather(*map(collect, [call, *more]))
    await served.generation.GenerateUnary(request_of())


async def test_a_model_that_fails_ends_the_stream_with_its_text(served: Served) -> None:
    """After the first chunks, which the client has."""
    decoder = served.decoders["tale"]
    decoder.hold(after=2)
    call = served.generation.Generate(request_of(max_tokens=40))
    first = await within_patience(call.read())
    await asyncio.to_thread(decoder.wait_for_runs, 3)
    assert first.text
    decoder.error = ValueError("out of order")
    decoder.release()
    code, text = await refusal(collect(call))
    assert (code, text) == (StatusCode.INTERNAL, "ValueError: out of order")
    decoder.error = None
    assert (await served.generation.GenerateUnary(request_of())).results


async def test_a_slow_reader_delays_no_other_and_misses_nothing(served: Served) -> None:
    """It reads nothing until another client has had two whole answers."""
    slow = served.generation.Generate(request_of("slow", max_tokens=40))
    for prompt in ("quick", "brown"):
        whole = await served.generation.GenerateUnary(
            request_of(prompt, max_tokens=40), timeout=PATIENCE_S
        )
        assert whole.results[0].text == greedy_text(prompt, 40)
    assert text_of(await collect(slow)) == greedy_text("slow", 40)


async def test_urgent_requests_go_first(served: Served) -> None:
    """Two wait for a step to end; the later one has priority 0, the other 1."""
    decoder = served.decoders["tale"]
    calls = await start_held(served)
    low, high = request_of("low", max_tokens=2), request_of("high", max_tokens=2)
    low.priority = 1
    waiting = [served.generation.GenerateUnary(low)]
    await eventually(lambda: served.num_waiting("tale") == 1)
    waiting.append(served.generation.GenerateUnary(high))
    await eventually(lambda: served.num_waiting("tale") == 2)
    decoder.release()
    await within_patience(asyncio.gather(collect(calls[0]), *waiting))
    starts = [row for run in decoder.calls for row in run.rows if len(row) > 1]
    assert starts == [tuple(prompt_ids("high")), tuple(prompt_ids("low"))]


async def test_drain_ends_what_was_admitted_and_refuses_the_rest(models: Path) -> None:
    async with serving(models) as served:
        (call,) = await start_held(served)
        stopping = asyncio.create_task(served.app.stop())
        await eventually(lambda: served.app._admission.is_draining)
        code, _ = await refusal(served.generation.GenerateUnary(request_of()))
        assert code is StatusCode.UNAVAILABLE
        served.decoders["tale"].release()
        assert text_of(await collect(call)) == greedy_text("a", 40)
        await within_patience(stopping)


async def test_what_does_not_end_in_time_is_cancelled(models: Path) -> None:
    async with serving(models, drain_timeout_s=0.2) as served:
        (call,) = await start_held(served)
        stopping = asyncio.create_task(served.app.stop())
        code, _ = await refusal(call.read())
        assert code in (StatusCode.CANCELLED, StatusCode.UNAVAILABLE)
        served.decoders["tale"].release()
        await within_patience(stopping)
