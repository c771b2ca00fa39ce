"""Ours without gRPC: an encoder's session, the engine of texts, and the engine that generates."""

import asyncio
import atexit
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from loadtests.compare.worker import Answer, Run, Setup, Work, serve
from loadtests.compare.workers.encoding import encoding
from loadtests.load.closed_loop import closed_loop
from loadtests.load.engine import KV_CACHE_BYTES, Prompt, Served, run_one, serving_model
from service.runtime.session import OnnxSession, SessionOptions
from service.serving.generative_model import GenerativeModel
from service.serving.model import Caller
from service.serving.text_model import TextModel

MODEL = "model"  # its name in the repository that it was exported to


def open_engine(setup: Setup) -> Run:
    task = setup.options["task"]
    if task == "classify":
        return _open_encoder(setup)
    return _open_generator(setup) if task == "generate" else _open_reader(setup)


def _open_encoder(setup: Setup) -> Run:
    graph = Path(setup.model) / MODEL / "1" / "model.onnx"
    options = SessionOptions(num_threads=setup.threads, can_spin=True)
    session = OnnxSession(graph, options)
    inputs = {spec.name for spec in session.signature.inputs}
    (output,) = session.signature.outputs

    return encoding(inputs, lambda feed: session.run(feed, [output.name])[0])


def _open_reader(setup: Setup) -> Run:
    """A model of texts with its tokenizer, queue and batches: all texts are one request."""
    model, loop = _opened(setup, setup.options["settings"], TextModel)
    read = model.task.tensors(model, {})

    async def compute(work: Work) -> Answer:
        texts = work.pairs if work.query else work.texts
        started_s = time.perf_counter()
        reply = await model.compute(texts, Caller(time.monotonic()), can_truncate=True)
        (values,) = read(texts, reply).values()
        return Answer(time.perf_counter() - started_s, values.astype(float).tolist())

    return lambda work: loop.run_until_complete(compute(work))


def _open_generator(setup: Setup) -> Run:
    settings: dict[str, Any] = {"prefix_reuse": False, "kv_cache_bytes": KV_CACHE_BYTES}
    settings |= setup.options["settings"]
    model, loop = _opened(setup, settings, GenerativeModel)
    return lambda work: loop.run_until_complete(_generate(model, work))


def _opened(
    setup: Setup, settings: dict[str, Any], kind: type[Served]
) -> tuple[Served, asyncio.AbstractEventLoop]:
    """The model, and an event loop that runs during a turn."""
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()
    values = {"num_threads": setup.threads, **settings}
    opened = serving_model(Path(setup.model), MODEL, kind, **values)
    model = loop.run_until_complete(stack.enter_async_context(opened))
    atexit.register(lambda: loop.run_until_complete(stack.aclose()))
    return model, loop


async def _generate(model: GenerativeModel, work: Work) -> Answer:
    tokens: dict[int, list[int]] = {}
    first_s: list[float] = []

    async def generate(index: int) -> None:
        prompt = work.rows[index]
        sample = await run_one(model, Prompt(prompt, work.num_tokens[index]))
        tokens[index] = [int(token) for token in sample.token_ids[len(prompt) :]]
        first_s.append(sample.timings.time_to_first_token_s)

    seconds = await closed_loop(range(len(work.rows)), work.concurrency, generate)
    return Answer(seconds, [tokens[index] for index in range(len(work.rows))], first_s=first_s)


if __name__ == "__main__":
    serve(open_engine)
