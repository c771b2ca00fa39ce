"""Ours: the session that serves encoders, and the engine that generates, without gRPC."""

import asyncio
import atexit
from contextlib import AsyncExitStack
from pathlib import Path

from loadtests.compare.worker import Answer, Run, Setup, Work, serve
from loadtests.compare.workers.encoding import encoding
from loadtests.load.closed_loop import closed_loop
from loadtests.load.engine import Prompt, run_one, serving
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

    return encoding(inputs, lambda feed: session.run(feed, [output.name])[0])


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
