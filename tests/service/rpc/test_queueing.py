"""Priorities and queue timeouts from the wire to the queue and back, on both APIs."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from attendant.v1 import generation_pb2, text_pb2
from grpc import StatusCode

from tests.fakes.serving import (
    Served,
    default_sessions,
    eventually,
    refusal,
    serving,
    text_request,
    within_patience,
)
from tests.fakes.sessions import classifier_manifest, generator_manifest, token_ids, write_model

TIMEOUT_S = 0.1
POLICY = f"""default_queue_policy {{
  default_timeout_microseconds: {TIMEOUT_S * 1e6:.0f} allow_timeout_override: true }}"""
LEVELS = "priority_levels: 3 default_priority_level: 2"
EXPIRED = "Request timeout expired"


@pytest.fixture
async def served(repository: Path) -> AsyncIterator[Served]:
    """`spam` has a timeout, `mini` levels (and takes one text at a time), `tale` a timeout."""
    batching = f"dynamic_batching {{ {POLICY} }}"
    write_model(repository, "spam", classifier_manifest(), batching)
    mini = f"max_batch_size: 1 dynamic_batching {{ {LEVELS} }}"
    write_model(repository, "mini", classifier_manifest(), mini)
    write_model(repository, "tale", generator_manifest(), batching)
    sessions = default_sessions()
    sessions._makers["mini"] = sessions._makers["spam"]
    async with serving(repository, sessions, max_running_sequences=1) as server:
        yield server


async def test_a_queue_timeout_has_triton_s_status_and_text_when_it_is_due(served: Served) -> None:
    running = await served.hold("spam")
    start_s = time.monotonic()
    assert await refusal(served.infer_text("spam", "now")) == (StatusCode.UNAVAILABLE, EXPIRED)
    assert time.monotonic() - start_s >= TIMEOUT_S
    classify = text_pb2.ClassifyRequest(model="spam", texts=["now"])
    assert await refusal(served.text.Classify(classify)) == (StatusCode.DEADLINE_EXCEEDED, EXPIRED)
    served.release("spam")
    await within_patience(running)


async def test_a_request_s_timeout_is_in_microseconds(served: Served) -> None:
    running = await served.hold("spam")
    request = text_request("spam", "now")
    request.parameters["timeout"].int64_param = 1_000
    start_s = time.monotonic()
    assert await refusal(served.inference.ModelInfer(request)) == (StatusCode.UNAVAILABLE, EXPIRED)
    assert time.monotonic() - start_s >= 0.001
    served.release("spam")
    await within_patience(running)


async def test_a_prompt_that_waits_too_long_is_told_so_amid_a_step(served: Served) -> None:
    decoder = served.decoders["tale"]
    decoder.hold()
    request = generation_pb2.GenerateRequest(model="tale", text="a")
    running = served.generation.GenerateUnary(request)
    running_end = asyncio.ensure_future(running)
    await asyncio.to_thread(decoder.wait_for_runs, 1)
    assert await refusal(served.generation.GenerateUnary(request)) == (
        StatusCode.DEADLINE_EXCEEDED,
        EXPIRED,
    )
    assert len(decoder.calls) == 1
    decoder.release()
    await within_patience(running_end)


async def test_priorities_order_the_queue(served: Served) -> None:
    """1 before 2, which 0 and 9 mean, before 3; tritonclient sends an unsigned number."""
    running = await served.hold("mini")
    waiting = []
    for count, (text, priority) in enumerate((("win", 3), ("free", 0), ("cash", 9), ("now", 1))):
        request = text_request("mini", text)
        request.parameters["priority"].uint64_param = priority
        waiting.append(asyncio.ensure_future(served.inference.ModelInfer(request)))
        await eventually(lambda most=count: served.num_waiting("mini") == most + 1)  # type: ignore[misc]
    served.release("mini")
    await within_patience(asyncio.gather(running, *waiting))
    batches = [batch["input_ids"].tolist() for batch in served.sessions["mini"].batches]
    assert batches == [[token_ids(text)] for text in ("lunch", "now", "free", "cash", "win")]


async def test_a_run_that_its_client_left_is_stopped(served: Served) -> None:
    """Whether it cancels or its deadline passes; the next request is answered."""
    session = served.sessions["spam"]
    for num_stopped, timeout_s in ((1, None), (2, 0.1)):
        session.calls.clear()
        session.hold()
        call = served.inference.ModelInfer(text_request("spam", "now"), timeout=timeout_s)
        await asyncio.to_thread(session.wait_for_runs, 1)
        if timeout_s is None:
            call.cancel()
        else:
            assert (await refusal(call))[0] is StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda most=num_stopped: session.num_stopped == most)  # type: ignore[misc]
    session.release()
    await served.infer_text("spam", "now")
