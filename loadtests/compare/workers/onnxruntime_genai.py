"""onnxruntime-genai under its own continuous batching.

Its builder knows no GPT-2. The graph of Hugging Face's exporter works with a configuration written
by hand, of type "llama" and without a shared buffer, and gives the same greedy tokens; but only
for prompts and outputs of equal length: others fail inside that graph.
"""

import itertools
import json
import time
from typing import Any

import numpy as np
import onnxruntime_genai as genai

from loadtests.compare.worker import Answer, Run, Setup, Work, serve

MOST_EVENTS = 64


def open_engine(setup: Setup) -> Run:
    engines: dict[int, Any] = {}

    def engine(concurrency: int) -> Any:
        """How many it batches is fixed when it is made; one is kept, since each has its weights."""
        if concurrency not in engines:
            engines.clear()
            config = genai.Config(setup.model)
            sessions = {"intra_op_num_threads": setup.threads}
            config.overlay(json.dumps({"model": {"decoder": {"session_options": sessions}}}))
            bound = {"static_batching": {"max_batch_size": concurrency}}
            config.overlay(json.dumps({"engine": bound}))
            engines[concurrency] = genai.Engine(genai.Model(config))
        return engines[concurrency]

    def run(work: Work) -> Answer:
        return _run(engine(work.concurrency), work)

    return run


def _run(engine: Any, work: Work) -> Answer:
    live: dict[int, Any] = {}
    tokens: list[list[int]] = [[] for _ in work.rows]
    waiting = iter(enumerate(zip(work.rows, work.num_tokens, strict=True)))
    events = engine.create_event_buffer(MOST_EVENTS)
    started_s = time.perf_counter()
    while True:
        for index, (prompt, count) in itertools.islice(waiting, work.concurrency - len(live)):
            live[index] = _begin(engine, prompt, count)
        if not live:
            break
        for event in engine.run(events):
            index = next(key for key, request in live.items() if request == event.request)
            flags = event.flags.value
            if flags & genai.EngineEventFlags.FAILED.value:
                raise RuntimeError(f"a request failed: {event.error_code}")
            if event.token is not None and flags & genai.EngineEventFlags.TOKEN.value:
                tokens[index].append(int(event.token))
            if flags & genai.EngineEventFlags.TURN_FINISHED.value:
                live.pop(index).close()
    return Answer(time.perf_counter() - started_s, tokens)


def _begin(engine: Any, prompt: list[int], count: int) -> Any:
    options = genai.RequestOptions()
    options.set_max_session_tokens(len(prompt) + count)
    request = engine.create_request(options=options)
    turn = genai.TurnOptions(request)
    turn.set_do_sample(False)
    turn.set_max_generated_tokens(count)
    turn.set_min_generated_tokens(count)
    request.begin_turn(np.array(prompt, np.int32), turn)
    return request


if __name__ == "__main__":
    serve(open_engine)
