"""Ours: the session that serves encoders, and the engine that generates, without gRPC."""

import asyncio
import atexit
import time
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np

from loadtests.compare.worker import Answer, Run, Setup, Work, padded, serve
from loadtests.load.engine import Prompt, run_one, serving
from service.contract.tensors import Arrays
from service.runtime.session import OnnxSession, SessionOptions
from service.serving.generative_model import GenerativeModel

MODEL = "model"  # its name in the repository that it was exported to


def open_engine(setup: Setup) -> Run:
    if setup.options["task"] == "classify":
        return _open_encoder(setup)
    return _open_generator(setup)


def _open_encoder(setup: Setup) -> Run:
    graph = Path(setup.model) / MODEL / "1" / "model.onnx"
    options = SessionOptions(num_threads=setup.threads, can_spin=True)
    session = OnnxSession(graph, options)
    inputs = {spec.name for spec in session.signature.inputs}
    (output,) = session.signature.outputs

    def feed(rows: list[list[int]]) -> Arrays:
        ids, mask = (np.array(values, np.int64) for values in padded(rows))
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: array for name, array in known.items() if name in inputs}

    def run(work: Work) -> Answer:
        started_s = time.perf_counter()
        found = [session.run(feed(rows), [output.name])[0] for rows in work.batches()]
        seconds = time.perf_counter() - started_s
        return Answer(seconds, np.concatenate(found).astype(float).tolist())

    return run


def _open_generator(setup: Setup) -> Run:
    """The engine, on an event loop that runs during a turn."""
    loop, stack = asyncio.new_event_loop(), AsyncExitStack()
    settings = {"prefix_reuse": False, "num_threads": setup.threads}
    opened = serving(Path(setup.model), MODEL, **settings | setup.options.get("settings", {}))
    model = loop.run_until_complete(stack.enter_async_context(opened))
    atexit.register(lambda: loop.run_until_complete(stack.aclose()))
    return lambda work: loop.run_until_complete(_generate(model, work))


async def _generate(model: GenerativeModel, work: Work) -> Answer:
    tokens: dict[int, list[int]] = {}
    waiting = iter(enumerate(zip(work.rows, work.num_tokens, strict=True)))

    async def client() -> None:
        for index, (prompt, num_tokens) in waiting:
            sample = await run_one(model, Prompt(prompt, num_tokens))
            tokens[index] = [int(token) for token in sample.token_ids[len(prompt) :]]

    started_s = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(work.concurrency)))
    seconds = time.perf_counter() - started_s
    return Answer(seconds, [tokens[index] for index in range(len(work.rows))])


if __name__ == "__main__":
    serve(open_engine)
