"""The session that our server opens, without a server: rows are made beforehand, and sorted.

Batches have at most as many rows as there are clients in flight, at the size that is fastest: what
a server could reach that has to wait for nothing and to do nothing but compute.
"""

import time
from pathlib import Path

import numpy as np

from loadtests.compare.servers.loops import LEAST_S
from loadtests.compare.worker import Answer, Run, Setup, Work, serve
from loadtests.measure.batching import BARE_BATCH_SIZES, BareSession
from service.batching.request import Request
from service.contract.files import ModelSource
from service.contract.tensors import Arrays
from service.records import Timings
from service.repository.loading import Openers, load_model
from service.serving.text_model import text_items
from service.settings import Settings

MODEL = "model"  # its name in the repository that it was exported to


def open_engine(setup: Setup) -> Run:
    repository = Path(setup.model)
    settings = Settings(model_repository=repository, num_threads=setup.threads, measure_cost_s=0.0)
    loaded = load_model(ModelSource.of(repository, MODEL), settings, Openers()).versions[-1]
    assert loaded.tokenizer is not None, "an embedder"
    assert loaded.manifest is not None, "the same"
    tokenizer, manifest, bare = loaded.tokenizer, loaded.manifest, BareSession(loaded)
    batches_of: dict[tuple[int, tuple[str, ...]], list[Arrays]] = {}

    def run(work: Work) -> Answer:
        rows = tokenizer.encode(work.texts, can_truncate=True)
        items = list(text_items(Request(Timings(0.0)), rows, manifest))
        key = work.concurrency, tuple(work.texts)
        if key not in batches_of:
            sizes = [size for size in BARE_BATCH_SIZES if size <= work.concurrency]
            batches_of[key] = bare.best_batches(items, sizes)
        turns, started_s = 0, time.perf_counter()
        while not turns or time.perf_counter() - started_s < LEAST_S:
            found = bare.run(batches_of[key])
            turns += 1
        seconds = (time.perf_counter() - started_s) / turns
        vectors = np.concatenate(found)
        outputs = np.empty_like(vectors)
        outputs[bare.order_of(items)] = vectors
        return Answer(seconds, outputs.astype(float).tolist())

    return run


if __name__ == "__main__":
    serve(open_engine)
