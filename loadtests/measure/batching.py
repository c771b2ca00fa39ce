"""The server over the bare session: what being asked over a network costs, in its own batches.

    python -m loadtests.measure batching --model minilm               # texts of real lengths
    python -m loadtests.measure batching --model bert --tokens 128    # texts of one length
    python -m loadtests.measure batching --per-request 8

Ways to compute the same rows:

    bare      the ONNX Runtime session alone, fed batches made beforehand: rows sorted by
              length, the batch size tried out for the best, one run at a time.
    server    through gRPC, batches formed by the server's own policy

Server and client share the machine's processors; bare has them alone.
"""

import random
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import typer
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from loadtests.load.lengths import SEED, mixed_texts
from loadtests.load.server import Server, serving
from loadtests.measure.calls import PROTOCOLS, turn_of
from loadtests.measure.records import Column, Measure, Options, Turn, Way, by_columns, option
from service.batching.collate import pad_rows
from service.batching.request import Item, Request
from service.contract.files import ModelSource
from service.contract.tensors import Arrays
from service.records import Timings
from service.repository.loading import LoadedVersion, Openers, load_model
from service.serving.text_model import text_items
from service.settings import Settings

BARE = "bare"
BARE_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
# Each is one token of every tokenizer that knows English.
WORDS = ("the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "was", "on", "as", "with")
MOST_TRIED = 1_024  # rows that batch sizes are tried out on
METRICS_TIMEOUT_S = 10.0
WAITS = "attendant_queue_seconds_bucket"
TENSORS = PROTOCOLS["embed"]["gRPC, tensors"]
Counts: TypeAlias = Mapping[tuple[str, float], float]  # by name and by the bound of a bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions(Options):
    """A text model of a repository, and the server that serves it."""

    model: str = option("minilm", "A text model of the repository.")
    repository: Path = option(Path("model_repository"), "Where the model is.")
    precision: str = option("auto", "As the server's, on both sides.")
    device: str = option("cpu", "The same.")
    flag: list[str] = option([], "Flag for the server, e.g. --flag=--can-spin.")

    def opened(self) -> LoadedVersion:
        """The model as the server would open it."""
        settings = Settings(
            model_repository=self.repository,
            precision=self.precision,
            device=self.device,
            # On a GPU a second of measuring chooses the layout of an encoder's graph.
            measure_cost_s=0.0 if self.device == "cpu" else 1.0,
        )
        source = ModelSource.of(self.repository, self.model)
        return load_model(source, settings, Openers()).versions[-1]

    @property
    def flags(self) -> list[str]:
        """A server of this model alone, which refuses nothing: a closed loop bounds its queue."""
        flags = ["--precision", self.precision, "--device", self.device]
        flags += ["--max-queue-s", "0", *self.flag]
        return [*flags, "--model-control-mode", "explicit", "--load-models", self.model]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingOptions(TextOptions):
    """How many texts of which lengths are sent."""

    texts: Path | None = option(None, "One text per line; by default some of real lengths.")
    tokens: int = option(0, "Tokens of each text; 0: texts of real lengths.", min=0)
    concurrency: int = option(32, "Requests in flight.", min=1)
    limit: int = option(872, "Texts.", min=1)
    per_request: int = option(1, "Texts of a request.", min=1)


def ways(options: BatchingOptions, stack: ExitStack) -> dict[str, Way]:
    """The bare session and the server side by side."""
    loaded = options.opened()
    server = stack.enter_context(serving(options.repository, flags_for(options, loaded)))
    return pair(options, loaded, server)


def flags_for(options: TextOptions, loaded: LoadedVersion) -> list[str]:
    """Flags of the server; on a GPU it has the layout that was measured as faster here."""
    layout = [] if options.device == "cpu" else ["--encoder-layout", loaded.plan.layout]
    return [*options.flags, *layout]


def pair(options: BatchingOptions, loaded: LoadedVersion, server: Server) -> dict[str, Way]:
    """The bare session, and a server of the same model, with the same rows."""
    if options.texts is not None and options.tokens:
        raise typer.BadParameter("--texts and --tokens are both given, expected one")
    lines = _lines(loaded, options.texts, options.tokens, options.limit)
    items, requests = rows_of(loaded, options.model, lines, options.per_request)
    lengths = {item.num_tokens for item in items}
    if options.tokens and lengths != {options.tokens}:
        raise typer.BadParameter(
            f"--tokens is {options.tokens}, and the texts have {sorted(lengths)}"
        )
    concurrency = options.concurrency
    # A server with one request in flight has no larger batch.
    sizes = (options.per_request,) if concurrency == 1 else BARE_BATCH_SIZES
    bare, num_rows = bare_way(loaded, items, sizes), len(items)
    num_tokens = sum(item.num_tokens for item in items)

    def asked() -> Turn:
        before = _read_counts(server.metrics_url)
        turn = turn_of(server, TENSORS.send, requests, concurrency)
        after = _read_counts(server.metrics_url)
        counts = {key: count - before.get(key, 0.0) for key, count in after.items()}
        # By Little's law: requests in flight over requests per second.
        latency_s = concurrency * turn["seconds"] / len(requests)
        of_batches = batches_of(counts, num_rows, num_tokens)
        return {**turn, **of_batches, "rows": num_rows, "latency_s": latency_s}

    return {BARE: lambda: {"seconds": bare(), "rows": num_rows}, "server": asked}


BATCHING = Measure(
    "batching",
    "Batches of the server, over gRPC, beside the session alone at its best batch size",
    "What a request costs",
    BatchingOptions,
    ways,
    by_columns(
        Column("rows/s", "rows/seconds"),
        Column("a text", "seconds/rows", "ms"),
        Column("over bare", "rows/seconds", over=BARE),
        Column("mean latency", "latency_s", "ms"),
        Column("rows a batch", "rows_a_batch"),
        Column("padding", "padding", "%"),
        Column("p50 wait", "p50_wait_s", "ms"),
        Column("p99 wait", "p99_wait_s", "ms"),
    ),
)


def _lines(loaded: LoadedVersion, texts: Path | None, tokens: int, limit: int) -> list[str]:
    """Lines of the file, texts of one length, or reviews, messages and passages mixed."""
    if texts is not None:
        return [line for line in texts.read_text(encoding="utf-8").splitlines() if line][:limit]
    if tokens:
        generator = random.Random(SEED)
        assert loaded.tokenizer is not None, "a text model of an encoder"
        (one,) = loaded.tokenizer.encode(WORDS[:1], can_truncate=True)
        num_words = tokens - one.num_tokens + 1
        return [" ".join(generator.choices(WORDS, k=num_words)) for _ in range(limit)]
    return mixed_texts(limit)


def rows_of(
    loaded: LoadedVersion, model: str, lines: Sequence[str], per_request: int = 1
) -> tuple[list[Item], list[Any]]:
    """Texts as the session takes them, and the requests for them."""
    assert loaded.tokenizer is not None, "a text model of an encoder"
    assert loaded.manifest is not None, "the same"
    rows = loaded.tokenizer.encode(lines, can_truncate=True)
    starts = range(0, len(lines), per_request)
    requests = [TENSORS.request(model, lines[start : start + per_request]) for start in starts]
    return list(text_items(Request(Timings(0.0)), rows, loaded.manifest)), requests


class BareSession:
    """The session that the server opens too, with batches of rows that are sorted by length."""

    def __init__(self, loaded: LoadedVersion) -> None:
        manifest = loaded.manifest
        assert manifest is not None, "a text model"
        self._session = loaded.sessions[0]
        signature = self._session.signature
        self._outputs = [spec.name for spec in signature.outputs]
        self._pad = pad_rows(manifest.pad_token_id, [spec.name for spec in signature.inputs])

    def order_of(self, rows: Sequence[Item]) -> list[int]:
        """The places of the rows, shortest first."""
        return sorted(range(len(rows)), key=lambda place: rows[place].num_tokens)

    def best_batches(
        self, rows: Sequence[Item], sizes: Sequence[int] = BARE_BATCH_SIZES
    ) -> list[Arrays]:
        """All rows in order of length, in batches of the fastest of these sizes."""
        items = [rows[place] for place in self.order_of(rows)]
        tried = items[:: -(-len(items) // MOST_TRIED)]

        def least_s(size: int) -> float:
            batches = self._batches(tried, size)
            return min(self.seconds(batches) for _ in range(3))

        return self._batches(items, min(sizes, key=least_s))

    def run(self, batches: Sequence[Arrays]) -> list[np.ndarray]:
        """The first output of each batch."""
        return [self._session.run(batch, self._outputs)[0] for batch in batches]

    def seconds(self, batches: Sequence[Arrays]) -> float:
        started_s = time.perf_counter()
        self.run(batches)
        return time.perf_counter() - started_s

    def _batches(self, items: Sequence[Item], size: int) -> list[Arrays]:
        return [self._pad(items[start : start + size]) for start in range(0, len(items), size)]


def bare_way(
    loaded: LoadedVersion, rows: Sequence[Item], batch_sizes: Sequence[int] = BARE_BATCH_SIZES
) -> Callable[[], float]:
    """The seconds of the session alone, at the best of several batch sizes."""
    bare = BareSession(loaded)
    best = bare.best_batches(rows, batch_sizes)
    return lambda: bare.seconds(best)


def read_samples(url: str) -> list[Sample]:
    """What a server's page of metrics has."""
    with urllib.request.urlopen(url, timeout=METRICS_TIMEOUT_S) as page:  # noqa: S310 - our own
        families = text_string_to_metric_families(page.read().decode())
    return [sample for family in families for sample in family.samples]


def _read_counts(url: str) -> Counts:
    """The server's counts for its model."""
    return {
        (sample.name, float(sample.labels.get("le", inf))): sample.value
        for sample in read_samples(url)
        if sample.name.startswith(("attendant_batch_tokens_", "attendant_queue_seconds_"))
    }


def batches_of(counts: Counts, num_rows: int, num_tokens: int) -> Turn:
    """Rows a batch, the share of padding in positions (B * S), and quantiles of the wait."""
    # Requests that waited no longer than each bound; between two bounds waits are taken for even.
    bounds_s = sorted(high_s for name, high_s in counts if name == WAITS and high_s < inf)
    reached = [0.0, *(counts[WAITS, high_s] for high_s in bounds_s)]
    p50_s, p99_s = (
        float(np.interp(share * counts[WAITS, inf], reached, [0.0, *bounds_s]))
        for share in (0.5, 0.99)
    )
    return {
        "rows_a_batch": num_rows / counts["attendant_batch_tokens_count", inf],
        "padding": 1 - num_tokens / counts["attendant_batch_tokens_sum", inf],
        "p50_wait_s": p50_s,
        "p99_wait_s": p99_s,
    }
