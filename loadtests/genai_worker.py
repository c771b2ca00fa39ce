"""onnxruntime-genai under its own continuous batching, as a peer of `loadtests.generation`.

Runs in an environment of its own, since it brings its own ONNX Runtime, and imports nothing of
ours: a JSON object per line on stdin says what to generate, a line on stdout how long it took.

    PEER/bin/python loadtests/genai_worker.py FOLDER_WITH_genai_config.json

GPT-2 is not a model that its builder knows. optimum's export with a handwritten configuration of
type "llama", without a shared buffer, works, and gives the same greedy tokens; but only for
prompts and outputs of equal length (`compare --equal`): others fail inside its graph.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import onnxruntime_genai as og


def run(
    engine: Any,  # noqa: ANN401
    requests: list[dict[str, Any]],
    concurrency: int,
) -> tuple[float, dict[int, list[int]]]:
    """Seconds for all requests, so many in flight, and each one's tokens."""
    live: dict[int, Any] = {}
    tokens: dict[int, list[int]] = {}
    waiting = list(enumerate(requests))
    events = engine.create_event_buffer(64)
    started_s = time.perf_counter()
    while waiting or live:
        while waiting and len(live) < concurrency:
            index, ask = waiting.pop(0)
            options = og.RequestOptions()
            options.set_max_session_tokens(len(ask["prompt"]) + ask["num_tokens"])
            request = engine.create_request(options=options)
            turn = og.TurnOptions(request)
            turn.set_do_sample(False)
            turn.set_max_generated_tokens(ask["num_tokens"])
            turn.set_min_generated_tokens(ask["num_tokens"])
            request.begin_turn(np.array(ask["prompt"], np.int32), turn)
            live[index], tokens[index] = request, []
        for event in engine.run(events):
            index = next(key for key, request in live.items() if request == event.request)
            flags = event.flags.value
            if flags & og.EngineEventFlags.FAILED.value:
                sys.exit(f"failed: {event.error_code}")
            if event.token is not None and flags & og.EngineEventFlags.TOKEN.value:
                tokens[index].append(int(event.token))
            if flags & og.EngineEventFlags.TURN_FINISHED.value:
                live.pop(index).close()
    return time.perf_counter() - started_s, tokens


def main() -> None:
    """Answer each line of stdin."""
    folder = sys.argv[1]
    for line in sys.stdin:
        asked = json.loads(line)
        config = og.Config(folder)
        bound = {"engine": {"static_batching": {"max_batch_size": asked["concurrency"]}}}
        config.overlay(json.dumps(bound))
        engine = og.Engine(og.Model(config))
        run(engine, asked["requests"][:1], 1)
        seconds, tokens = run(engine, asked["requests"], asked["concurrency"])
        print(json.dumps({"seconds": seconds, "first": tokens[0]}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
