"""What metrics cost: servers without and with them, in turns.

    python -m loadtests.measure observability --rounds 90

The model adds a row to itself, so that a request is nothing but the server's own work: this is the
most that metrics may cost. Each server is a process; one computes, the others wait. Ratios are
taken within a round, over the server as it is by default, with metrics and without traces. Two
servers that are alike say how much of a difference is noise.

The processor's time that a server takes per request is its own, but for what neighbours do to
caches and clocks, which only adds to it: of many short turns the cheapest tenth compare best.
"""

import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from loadtests.load.graphs import write_sums
from loadtests.load.server import SERVE, serving
from loadtests.load.turns import spread
from loadtests.measure.calls import PROTOCOLS, SUMS, turn_of
from loadtests.measure.records import (
    TIMES,
    Column,
    Figure,
    Measure,
    Options,
    Rounds,
    Way,
    by_columns,
    option,
)

BASE = "metrics (default)"
# `attendant` whose models count nothing.
UNCOUNTED = """
import sys
from commands.main import main
from service.observe.metrics import ModelMetrics
for name in ("request_ended", "batch_ran"):
    assert hasattr(ModelMetrics, name), name
    setattr(ModelMetrics, name, lambda *_: None)
sys.argv[0] = "attendant"
main()
"""
COMMANDS: dict[str, Sequence[str]] = {
    "no metrics": (sys.executable, "-c", UNCOUNTED, "serve"),
    BASE: SERVE,
    "... again": SERVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilityOptions(Options):
    """The load."""

    concurrency: int = option(32, "Requests in flight.", min=1)
    requests: int = option(320, "Requests of one turn.", min=1)
    rounds: int = option(60, "Rounds that count.", min=1)


def ways(options: ObservabilityOptions, stack: ExitStack) -> dict[str, Way]:
    """A server without metrics, and two that have them."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    write_sums(folder, SUMS)
    protocol = next(iter(PROTOCOLS[SUMS].values()))
    requests = [protocol.request(SUMS, ())] * options.requests
    found: dict[str, Way] = {}
    for name, command in COMMANDS.items():
        server = stack.enter_context(serving(folder, command=command))
        found[name] = partial(turn_of, server, protocol.send, requests, options.concurrency)
    return found


BY_ROUND = by_columns(
    Column("requests/s", "requests/seconds"),
    Column("rate over the default", "requests/seconds", over=BASE),
    Column("a request", "server_us", "us"),
    Column("time over the default", "server_us", over=BASE),
)


def figures(rounds: Rounds) -> list[Figure]:
    """Figures of rounds, and the cheapest tenth of all turns."""
    cheapest_us = {
        way: float(np.quantile([turn["server_us"] for turn in turns], 0.1))
        for way, turns in rounds.items()
    }
    return BY_ROUND(rounds) + [
        Figure.of(
            way, "cheapest tenth over the default's", spread([own / cheapest_us[BASE]]), TIMES
        )
        for way, own in cheapest_us.items()
        if way != BASE
    ]


OBSERVABILITY = Measure(
    "observability",
    "The processor time of a request with metrics and without",
    "What a request costs",
    ObservabilityOptions,
    ways,
    figures,
)
