"""Ours without gRPC: an encoder's session, the engine of texts, and the engine that generates.

Beside the settings of the server, options name a model other than `model`, a graph other than
`model.onnx`, and a device. docs/how-to/cuda.md says what was verified on CUDA.
"""

import asyncio
import atexit
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from loadtests.compare.worker import Answer, Run, Setup, Work, serve
from loadtests.compare.workers.encoding import encoding
from loadtests.load.closed_loop import closed_loop
from loadtests.load.engine import KV_CACHE_BYTES, Prompt, Served, run_one, serving_model
from service.generation.sequence import Sequence as Sample
from service.records import RanStep
from service.runtime.session import OnnxSession, SessionOptions, choose_device
from service.serving.generative_model import GenerativeModel
from service.serving.model import Caller
from service.serving.text_model import TextModel

MODEL = "model"  # its name in the repository that it was exported to


def open_engine(setup: Setup) -> Run:
    stack = ExitStack()
    atexit.register(stack.close)
    return open_on(stack, setup)


def open_on(stack: ExitStack, setup: Setup) -> Run:
    """The engine, which ends with the stack."""
    task = setup.options["task"]
    if task == "classify":
        return _open_encoder(setup)
    return _open_generator(stack, setup) if task == "generate" else _open_reader(stack, setup)


def _open_encoder(setup: Setup) -> Run:
    graph = Path(setup.model) / _name(setup) / "1" / setup.options.get("graph", "model.onnx")
    device = choose_device(setup.device)
    options = SessionOptions(device=device, num_threads=setup.threads, can_spin=True)
    session = OnnxSession(graph, options)
    inputs = {spec.name for spec in session.signature.inputs}
    (output,) = session.signature.outputs

    return encoding(inputs, lambda feed: session.run(feed, [output.name])[0])


def _open_reader(stack: ExitStack, setup: Setup) -> Run:
    """A model of texts with its tokenizer, queue and batches: all texts are one request."""
    model, loop = _opened(stack, setup, setup.options["settings"], TextModel)
    read = model.task.tensors(model, {})

    async def compute(work: Work) -> Answer:
        texts = work.pairs if work.query else work.texts
        started_s = time.perf_counter()
        reply = await model.compute(texts, Caller(time.monotonic()), can_truncate=True)
        (values,) = read(texts, reply).values()
        return Answer(time.perf_counter() - started_s, values.astype(float).tolist())

    return lambda work: loop.run_until_complete(compute(work))


def _open_generator(stack: ExitStack, setup: Setup) -> Run:
    settings: dict[str, Any] = {"prefix_reuse": False, "kv_cache_bytes": KV_CACHE_BYTES}
    settings |= setup.options["settings"]
    steps: list[RanStep] = []
    model, loop = _opened(stack, setup, settings, GenerativeModel, steps)
    return lambda work: loop.run_until_complete(_generate(model, work, steps))


def _opened(
    stack: ExitStack,
    setup: Setup,
    settings: dict[str, Any],
    kind: type[Served],
    steps: list[RanStep] | None = None,
) -> tuple[Served, asyncio.AbstractEventLoop]:
    """The model, and an event loop that runs during a turn; its steps are added to a list."""
    loop, opening = asyncio.new_event_loop(), AsyncExitStack()
    stack.callback(loop.close)
    stack.callback(lambda: loop.run_until_complete(opening.aclose()))
    values = {"num_threads": setup.threads, "device": setup.device, **settings}
    opened = serving_model(Path(setup.model), _name(setup), kind, steps, **values)
    return loop.run_until_complete(opening.enter_async_context(opened)), loop


def _name(setup: Setup) -> str:
    return str(setup.options.get("name", MODEL))


async def _generate(model: GenerativeModel, work: Work, steps: list[RanStep]) -> Answer:
    samples: dict[int, Sample] = {}

    async def generate(index: int) -> None:
        prompt = Prompt(work.rows[index], work.num_tokens[index])
        samples[index] = await run_one(model, prompt)

    steps.clear()
    seconds = await closed_loop(range(len(work.rows)), work.concurrency, generate)
    ended = [samples[index] for index in range(len(work.rows))]
    tokens = [each.token_ids[each.num_prompt_tokens : each.num_tokens].tolist() for each in ended]
    first_s = [each.timings.time_to_first_token_s for each in ended]
    return Answer(seconds, tokens, first_s=first_s, counts=_counts(steps, ended, work.concurrency))


def _counts(steps: list[RanStep], samples: Sequence[Sample], num_rows: int) -> dict[str, float]:
    """Rows of the steps, and the share of prompts' tokens that were in the cache.

    Of decoding steps that had all rows, but for the first, which waited for a prompt: the time from
    token to token, and the share of it outside of the decoder's run. A run is from the filling of
    its inputs to its logits, or candidates, on the host.
    """
    reused = sum(each.num_reused_tokens for each in samples)
    counts = {
        "rows_a_step": statistics.mean(step.num_rows for step in steps),
        "most_rows": max(step.num_rows for step in steps),
        "reused": reused / sum(each.num_prompt_tokens for each in samples),
    }
    full = [each for each in steps if each.phase == "decode" and each.num_rows == num_rows][1:]
    times = [
        (each.run_s, statistics.median(each.inter_token_s)) for each in full if each.inter_token_s
    ]
    if times:
        counts["step_s"] = statistics.median(step_s for _, step_s in times)
        counts["outside"] = statistics.median(1 - run_s / step_s for run_s, step_s in times)
    return counts


if __name__ == "__main__":
    serve(open_engine)
