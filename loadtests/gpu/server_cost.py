"""Section 7: what the server adds to the bare session, in rows per second and in time per request.

Bare is the session that the server opens, in this process, with batches made beforehand: rows
sorted by length, at the best batch size. The server is a process of its own that forms batches by
itself; its clients are coroutines of this process on the same machine, so that they are in its
time. Both compute the same texts, in turns.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tritonclient.grpc import service_pb2

from loadtests.gpu.builds import builds_of
from loadtests.gpu.context import Context, Findings
from loadtests.gpu.server import COMMAND, errors_with
from loadtests.gpu.shapes import TITLES, encoders
from loadtests.gpu.speed import noise_sentence
from loadtests.gpu.timing import MAX_ROUNDS, Quartiles, Way, interleaved, noise_of, ratios, short
from loadtests.load.lengths import mixed
from loadtests.load.server import Server, start_server
from loadtests.measure.batching import ask_all, bare_way, rows_of
from service.contract.files import ModelSource
from service.repository.loading import LoadedVersion, Openers, load_model
from service.settings import Settings

NUM_TEXTS, TINY_TEXTS = 512, 24
NUM_SINGLE = 64  # texts of the load with one request in flight
SEED = 11
LOG = "server-cost.log"
TINY_ROUNDS = 3
Requests = list[service_pb2.ModelInferRequest]


@dataclass(frozen=True, slots=True)
class Load:
    """Texts of real lengths: how many are in a request, and how many requests are in flight."""

    texts_a_request: int
    in_flight: int

    @property
    def name(self) -> str:
        what = "1 text" if self.texts_a_request == 1 else f"{self.texts_a_request} texts"
        return f"{what} a request, {self.in_flight} in flight"


def loads(*, is_tiny: bool) -> list[Load]:
    if is_tiny:
        return [Load(1, 1), Load(1, 8), Load(4, 2)]
    return [Load(1, 1), Load(1, 32), Load(1, 128), Load(32, 8)]


def run(context: Context) -> Findings:
    """Times of the server and of the bare session under each load."""
    name = next(iter(encoders(is_tiny=context.is_tiny)))
    builds = builds_of(context)
    builds.start([name])
    if problem := builds.problem(name, context.left_s):
        raise RuntimeError(f"{TITLES[name]}: {problem}")
    settings = Settings(model_repository=builds.repository, device=context.device)
    source = ModelSource.of(builds.repository, name)
    loaded = load_model(source, settings, Openers()).versions[-1]
    flags = ["--model-control-mode", "explicit", "--load-models", name]
    flags += ["--device", context.device, "--max-queue-s", "0"]
    flags += ["--encoder-layout", loaded.plan.layout]  # the one that was measured as faster
    log = context.run.out / LOG
    with errors_with(log):
        server = start_server(builds.repository, flags, command=COMMAND, log=log)
        try:
            rows, noise, left_out = _compare(context, name, loaded, server)
        finally:
            server.stop()
    return {
        "summary": [
            f"{TITLES[name]}, texts of real lengths. One process with one event loop sends all "
            "requests; it has the machine's processors together with the server.",
            f"The model as it was loaded: {loaded.description}.",
            *noise_sentence(noise),
        ],
        "left_out": left_out,
        "tables": [_table(rows)],
        "rows": rows,
    }


def _compare(
    context: Context, name: str, loaded: LoadedVersion, server: Server
) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    rows: list[dict[str, Any]] = []
    noise: list[str] = []
    left_out: list[str] = []
    some = loads(is_tiny=context.is_tiny)
    for index, load in enumerate(some):
        if context.is_over:
            left_out.append(f"{load.name}: the section's time was over.")
            continue
        part = context.until(1 / (len(some) - index))
        part.say(load.name)
        texts = texts_of(load, is_tiny=context.is_tiny)
        ways = _ways(loaded, name, texts, load, server.address)
        max_rounds = TINY_ROUNDS if context.is_tiny else MAX_ROUNDS
        seconds = interleaved(ways, max(0.0, part.left_s), min_rounds=3, max_rounds=max_rounds)
        rows.append(row_of(load, len(texts), seconds))
        noise += noise_of(seconds, load.name)
    return rows, noise, left_out


def texts_of(load: Load, *, is_tiny: bool) -> list[str]:
    """Texts of real lengths, a whole number of requests."""
    generator = Random(SEED)
    count = TINY_TEXTS if is_tiny else NUM_TEXTS if load.in_flight > 1 else NUM_SINGLE
    return [lengths.text(generator) for lengths in mixed(count, generator)]


def _ways(
    loaded: LoadedVersion, name: str, texts: Sequence[str], load: Load, address: str
) -> dict[str, Way]:
    items, singles = rows_of(loaded, name, texts)
    requests = joined(singles, load.texts_a_request)
    if load.in_flight == 1:
        bare = bare_way(loaded, items, batch_sizes=(load.texts_a_request,))
    else:
        bare = bare_way(loaded, items)
    return {
        "bare": bare,
        "server": lambda: asyncio.run(ask_all(address, requests, load.in_flight)),
    }


def joined(singles: Requests, size: int) -> Requests:
    """The same texts, `size` of them in a request."""
    groups = [singles[start : start + size] for start in range(0, len(singles), size)]
    requests = []
    for group in groups:
        request = service_pb2.ModelInferRequest()
        request.CopyFrom(group[0])
        request.inputs[0].shape[:] = [len(group), 1]
        request.raw_input_contents[0] = b"".join(each.raw_input_contents[0] for each in group)
        requests.append(request)
    return requests


def row_of(load: Load, num_texts: int, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """The figures of one load, as plain JSON."""
    own, bare = Quartiles.of(seconds["server"]), Quartiles.of(seconds["bare"])
    num_requests = -(-num_texts // load.texts_a_request)
    return {
        "load": load.name,
        "in_flight": load.in_flight,
        "num_texts": num_texts,
        "server_s": own.to_dict(),
        "bare_s": bare.to_dict(),
        "server_rows_per_s": own.per_second(num_texts).to_dict(),
        "bare_rows_per_s": bare.per_second(num_texts).to_dict(),
        "over_bare": ratios(seconds["server"], seconds["bare"]).to_dict(),
        # By Little's law: requests in flight over requests per second.
        "latency_s": load.in_flight * own.median / num_requests,
        "added_s": (own.median - bare.median) / num_texts,
    }


def _table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": "The server over the bare session",
        "columns": [
            *("load", "bare, rows/s", "server, rows/s", "server over bare"),
            *("mean latency, ms", "added per text, us"),
        ],
        "rows": [
            [
                row["load"],
                Quartiles(**row["bare_rows_per_s"]).text(),
                Quartiles(**row["server_rows_per_s"]).text(),
                Quartiles(**row["over_bare"]).text(),
                short(row["latency_s"] * 1e3),
                short(row["added_s"] * 1e6),
            ]
            for row in rows
        ],
    }
