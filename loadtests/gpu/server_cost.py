"""Section 7: what the server adds to the bare session, in rows per second and in time per text.

Bare is the session that the server opens, in this process, with batches made beforehand: rows
sorted by length, at the best batch size. The server is a process of its own that forms batches by
itself; its clients are coroutines of this process on the same machine, so that they are in its
time. Both compute the same texts, in turns.
"""

import asyncio
import statistics
from random import Random

from loadtests.gpu.context import Context
from loadtests.gpu.models import first_of
from loadtests.gpu.server import COMMAND
from loadtests.gpu.timing import MAX_ROUNDS, TINY_ROUNDS, Way, interleaved, write_rows
from loadtests.load.lengths import mixed
from loadtests.load.server import start_server
from loadtests.measure.batching import ask_all, bare_way, rows_of
from models.networks.encoder import EncoderConfig
from service.contract.files import ModelSource
from service.repository.loading import Openers, load_model
from service.settings import Settings

NUM_TEXTS, TINY_TEXTS = 512, 24
NUM_SINGLE = 64  # texts of the load with one request in flight
SEED = 11
LOADS, TINY_LOADS = ((1, 1), (1, 32), (1, 128), (32, 8)), ((1, 1), (1, 8), (4, 2))


def run(context: Context) -> None:
    """Times of the server and of the bare session under each load."""
    if (model := first_of(context, EncoderConfig)) is None:
        context.leave_out("the server beside its session: no encoder is there")
        return
    settings = Settings(model_repository=model.repository, device=context.device)
    with context.parts.timed("open"):
        source = ModelSource.of(model.repository, model.name)
        loaded = load_model(source, settings, Openers()).versions[-1]
        server = start_server(
            model.repository,
            [
                *("--model-control-mode", "explicit", "--load-models", model.name),
                *("--device", context.device, "--max-queue-s", "0"),
                *("--encoder-layout", loaded.plan.layout),  # the one that was measured as faster
            ],
            command=COMMAND,
            log=context.run.out / "server-cost.log",
        )
    context.summarize(f"{model.name}, as it was loaded: {loaded.description}.")
    loads = TINY_LOADS if context.is_tiny else LOADS
    try:
        for index, (per_request, in_flight) in enumerate(loads):
            name = f"{per_request} texts a request, {in_flight} in flight"
            if context.is_over:
                context.leave_out(f"{name}: no time was left")
                continue
            items, requests = rows_of(
                loaded, model.name, texts_of(in_flight, is_tiny=context.is_tiny), per_request
            )
            sizes = {"batch_sizes": (per_request,)} if in_flight == 1 else {}
            ways: dict[str, Way] = {
                "bare": bare_way(loaded, items, **sizes),
                "ours, served": lambda: asyncio.run(ask_all(server.address, requests, in_flight)),  # noqa: B023
            }
            max_rounds = TINY_ROUNDS if context.is_tiny else MAX_ROUNDS
            time_s = context.until(1 / (len(loads) - index))
            seconds = interleaved(ways, time_s, max_rounds=max_rounds)
            medians = {way: statistics.median(each) for way, each in seconds.items()}
            added_us = (medians["ours, served"] - medians["bare"]) / len(items) * 1e6
            # By Little's law: requests in flight over requests per second.
            latency_ms = in_flight * medians["ours, served"] / len(requests) * 1e3
            where = {"load": name, "added a text, us": added_us, "mean latency, ms": latency_ms}
            write_rows(context, "The server", where, seconds, (len(items), "rows/s"))
            context.say(name)
    finally:
        server.stop()


def texts_of(in_flight: int, *, is_tiny: bool) -> list[str]:
    """Texts of real lengths, a whole number of requests."""
    generator = Random(SEED)
    count = TINY_TEXTS if is_tiny else NUM_TEXTS if in_flight > 1 else NUM_SINGLE
    return [lengths.text(generator) for lengths in mixed(count, generator)]
