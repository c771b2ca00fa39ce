"""What a request costs a server, by protocol.

    python -m loadtests.measure cost                                   # MiniLM, a text a request
    python -m loadtests.measure cost --texts 1 --texts 8
    python -m loadtests.measure cost --what sums --concurrency 1 --concurrency 32
    python -m loadtests.measure cost --what generate --model gpt

`sums` is a model that adds a row to itself, so that a request is nothing but the server's own work;
a generation is 32 tokens in as many events. The bare session computes the same texts, at the best
of several batch sizes: its processor time over that of server and client is the part of the bare
rate that the machine's cores can reach.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from loadtests.load.graphs import write_sums
from loadtests.load.lengths import mixed_texts
from loadtests.load.server import serving
from loadtests.measure.batching import BARE, TextOptions, bare_way, rows_of
from loadtests.measure.calls import PROTOCOLS, SUMS, turn_of
from loadtests.measure.records import (
    CASE,
    FIRST,
    Column,
    Measure,
    Turn,
    Way,
    by_columns,
    counted,
    option,
)

MODEL_OF = {SUMS: SUMS, "embed": "minilm", "generate": "gpt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOptions(TextOptions):
    """What is asked, and how much at once."""

    what: str = option("embed", f"{', '.join(PROTOCOLS)}.")
    model: str = option("", "By default minilm or gpt, as is asked.")
    texts: list[int] = option([1], "Texts of a request to embed.", min=1)
    concurrency: list[int] = option([32], "Requests in flight.", min=1)
    limit: int = option(640, "Texts of one turn.", min=32)


def ways(options: CostOptions, stack: ExitStack) -> dict[str, Way]:
    """Every protocol at every number of texts and of requests in flight."""
    if options.what not in PROTOCOLS:
        raise typer.BadParameter(f"--what is '{options.what}', expected one of {list(PROTOCOLS)}")
    is_embedding = options.what == "embed"
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    model = options.model or MODEL_OF[options.what]
    repository = options.repository
    if options.what == SUMS:
        repository = folder / "models"
        write_sums(repository, SUMS)
    flags = ["--http-port", "0", "--precision", options.precision, "--max-queue-s", "0"]
    flags += ["--model-control-mode", "explicit", "--load-models", model, *options.flag]
    server = stack.enter_context(serving(repository, flags))
    lines = mixed_texts(options.limit)
    bare = _bare(CostOptions(model=model, repository=repository), lines) if is_embedding else None
    found: dict[str, Way] = {}
    for count in options.texts if is_embedding else [1]:
        groups = [lines[start : start + count] for start in range(0, len(lines), count)]
        for level in options.concurrency:
            case = f"{counted(count, 'text')}, {level} in flight{CASE}"
            for name, protocol in PROTOCOLS[options.what].items():
                requests = [protocol.request(model, group) for group in groups]
                found[f"{case}{name}"] = partial(turn_of, server, protocol.send, requests, level)
            if bare is not None:
                found[f"{case}{BARE}"] = partial(_bare_turn, bare, len(groups))
    return found


def _bare(options: CostOptions, lines: Sequence[str]) -> Callable[[], float]:
    loaded = options.opened()
    return bare_way(loaded, rows_of(loaded, options.model, lines)[0])


def _bare_turn(run: Callable[[], float], num_requests: int) -> Turn:
    cpu_ns = time.process_time_ns()
    seconds = run()
    server_us = (time.process_time_ns() - cpu_ns) / num_requests / 1e3
    return {"seconds": seconds, "requests": num_requests, "server_us": server_us, "client_us": 0.0}


def both_us(turn: Turn) -> float:
    return turn["server_us"] + turn["client_us"]


COST = Measure(
    "cost",
    "What a request costs a server, by protocol",
    "What a request costs",
    CostOptions,
    ways,
    by_columns(
        Column("server", "server_us", "us"),
        Column("client", "client_us", "us"),
        Column("requests/s", "requests/seconds"),
        Column("tokens/s", "tokens/seconds"),
        Column("p50", "latency_p50_s", "ms"),
        Column("p99", "latency_p99_s", "ms"),
        Column("between tokens, p50", "gap_p50_s", "ms"),
        Column("between tokens, p99", "gap_p99_s", "ms"),
        Column("rate over the first protocol's", "requests/seconds", over=FIRST),
        Column("rate over the bare session's", "requests/seconds", over=BARE),
        Column("bare time over server and client", lambda turn: 1 / both_us(turn), over=BARE),
    ),
)
