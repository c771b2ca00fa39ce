"""OpenVINO for encoders, openvino-genai's continuous batching for decoders, at any properties."""

import itertools
import time
from typing import Any

import numpy as np
import openvino

from loadtests.compare.worker import Answer, Run, Setup, Work, serve
from loadtests.compare.workers.encoding import encoding
from loadtests.compare.workers.texts import reading

CACHE_GIB = 2
MOST_SEQUENCES = 32
DEVICE = "CPU"


def open_engine(setup: Setup) -> Run:
    properties = {"INFERENCE_NUM_THREADS": setup.threads, **setup.options["properties"]}
    if setup.options["task"] == "generate":
        return _open_generator(setup.model, properties)
    return _open_encoder(setup, properties)


def _open_encoder(setup: Setup, properties: dict[str, Any]) -> Run:
    """One stream of all threads, the fastest of its modes for batches that come one by one."""
    core = openvino.Core()
    graph = core.read_model(f"{setup.model}/openvino_model.xml")
    request = core.compile_model(
        graph, DEVICE, properties | {"NUM_STREAMS": 1}
    ).create_infer_request()
    inputs = {each.get_any_name() for each in graph.inputs}
    if setup.options["task"] == "classify":
        return encoding(inputs, lambda feed: request.infer(feed)[0])
    return reading(setup, inputs, lambda feed: request.infer(feed)[0])


def _open_generator(folder: str, properties: dict[str, Any]) -> Run:
    import openvino_genai

    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = CACHE_GIB
    scheduler.max_num_seqs = MOST_SEQUENCES
    scheduler.enable_prefix_caching = False
    scheduler.dynamic_split_fuse = True
    pipeline = openvino_genai.ContinuousBatchingPipeline(folder, scheduler, DEVICE, properties)
    numbers = itertools.count()

    def greedy(num_tokens: int) -> Any:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = num_tokens
        config.ignore_eos, config.do_sample = True, False
        return config

    def run(work: Work) -> Answer:
        tokens: list[list[int]] = [[] for _ in work.rows]
        waiting = iter(enumerate(zip(work.rows, work.num_tokens, strict=True)))
        live: dict[int, Any] = {}
        given_s: dict[int, float] = {}
        first_s: dict[int, float] = {}
        started_s = time.perf_counter()
        while True:
            for index, (prompt, num_tokens) in itertools.islice(
                waiting, work.concurrency - len(live)
            ):
                ids = openvino.Tensor(np.array([prompt], np.int64))
                given_s[index] = time.perf_counter()
                live[index] = pipeline.add_request(next(numbers), ids, greedy(num_tokens))
            if not live:
                break
            pipeline.step()
            stepped_s = time.perf_counter()
            for index, handle in list(live.items()):
                while handle.can_read():
                    for part in handle.read().values():
                        tokens[index] += part.generated_ids
                    first_s.setdefault(index, stepped_s - given_s[index])
                if handle.get_status() != openvino_genai.GenerationStatus.RUNNING:
                    del live[index]
        seconds = time.perf_counter() - started_s
        return Answer(seconds, tokens, first_s=list(first_s.values()))

    return run


if __name__ == "__main__":
    serve(open_engine)
