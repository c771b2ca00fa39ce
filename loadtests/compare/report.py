"""Results as tables, JSON files and one picture; rows that we lose are shown like the others."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtests.compare import panels
from loadtests.compare.comparison import Result
from loadtests.compare.encoders import ENCODER_TRAFFIC
from loadtests.compare.panels import Bar, Panel
from loadtests.compare.server_traffic import SERVER_TRAFFIC
from loadtests.compare.traffic import CLASSIFY, GENERATE, LLAMA_TRAFFIC, TRAFFIC
from loadtests.load.turns import Spread, per_second, times_faster

PERCENTS = (50, 99)
LATENCY = "p50 / p99 ms"
TO_FIRST = "first token, p50 ms"
BY_MODEL = [*LLAMA_TRAFFIC.values(), *ENCODER_TRAFFIC.values(), *SERVER_TRAFFIC.values()]
ORDER = [traffic.name for traffic in (*TRAFFIC, *chain.from_iterable(BY_MODEL))]
UNITS = {GENERATE: "tokens/s", CLASSIFY: "rows/s"}


def keep(result: Result, folder: Path) -> None:
    """Save one result: a later run of the same peer and traffic replaces it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{result.traffic}--{result.peer}".replace(" ", "-").replace("/", "-")
    (folder / f"{name}.json").write_text(json.dumps(asdict(result)))


def kept(folder: Path) -> list[Result]:
    """All that were kept, by traffic, slowest last."""
    results = [Result(**json.loads(path.read_text())) for path in sorted(folder.glob("*--*.json"))]
    return sorted(results, key=lambda result: (_place(result), -speed(result)))


def _place(result: Result) -> tuple[int, str]:
    known = result.traffic in ORDER
    return (ORDER.index(result.traffic) if known else len(ORDER), result.traffic)


def speed(result: Result) -> float:
    return per_second(result.amount, result.theirs_s) if result.theirs_s else 0.0


def ratios(result: Result) -> dict[str, Spread]:
    """The ratio of each of ours over the peer."""
    if not result.theirs_s:
        return {}
    return {name: times_faster(s, result.theirs_s) for name, s in result.ours_s.items()}


def show(results: Sequence[Result], console: Console) -> None:
    """A table per kind of traffic: ours first, then the peers from fast to slow."""
    for machine in {json.dumps(result.machine) for result in results}:
        console.print(f"[dim]{machine}")
    for command in dict.fromkeys(result.command for result in results):
        console.print(f"[dim]python -m loadtests.compare {command}")
    for _, group in groupby(results, _place):
        console.print(_table(list(group)))


def _table(results: Sequence[Result]) -> Table:
    first = results[0]
    unit = _unit(first)
    ours = our_speeds(results)
    headings = [f"{name} over it" for name in ours]
    waits, timed = _latencies(results), [LATENCY]
    if not waits:
        waits = _first_tokens(results)
        timed = [TO_FIRST] if waits else []
    title = f"{first.traffic}: {first.what}"
    versions = dict(pair for result in results for pair in result.versions.items())
    caption = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    table = Table("", unit, *headings, *timed, "agreement", title=title, caption=caption)
    agreements = our_agreements(results)
    for name, own_speed in ours.items():
        cells = ["" for _ in ours] + ([waits.get(name, "")] if waits else [])
        table.add_row(f"[bold]{name}", f"{own_speed:.0f}", *cells, agreements.get(name, ""))
    for result in results:
        found = ratios(result)
        cells = [str(found[name]) if name in found else "" for name in ours]
        cells += [waits.get(result.peer, "")] if waits else []
        shown = f"{speed(result):.0f}" if result.theirs_s else "-"
        table.add_row(result.peer, shown, *cells, result.fault or result.agreement)
    return table


def our_speeds(results: Iterable[Result]) -> dict[str, float]:
    """The median speed of each of ours, over all rounds with all peers."""
    speeds: dict[str, list[float]] = {}
    for result in results:
        for name, seconds in result.ours_s.items():
            speeds.setdefault(name, []).extend(result.amount / each for each in seconds)
    return {name: statistics.median(values) for name, values in speeds.items()}


def our_agreements(results: Iterable[Result]) -> dict[str, str]:
    """The agreement of each of ours with the reference, where it was kept."""
    return {name: text for result in results for name, text in result.our_agreement.items()}


def _latencies(results: Iterable[Result]) -> dict[str, str]:
    """The latencies of every server, over all rounds with all others."""
    latencies_s: dict[str, list[float]] = {}
    for result in results:
        for name, values in result.latencies_s.items():
            latencies_s.setdefault(name, []).extend(values)
    return {
        name: " / ".join(f"{value * 1e3:.0f}" for value in np.percentile(values, PERCENTS))
        for name, values in latencies_s.items()
        if values
    }


def _first_tokens(results: Iterable[Result]) -> dict[str, str]:
    """The median time to the first token of every program, over all rounds."""
    times_s: dict[str, list[float]] = {}
    for result in results:
        for name, values in result.first_s.items():
            times_s.setdefault(name, []).extend(values)
    return {name: f"{np.median(each) * 1e3:.0f}" for name, each in times_s.items() if each}


def write_json(results: Sequence[Result], path: Path) -> None:
    """Everything that was measured, with ratios."""
    path.write_text(json.dumps([_as_json(result) for result in results], indent=1))


def _as_json(result: Result) -> dict[str, Any]:
    return asdict(result) | {"ratios": {key: asdict(r) for key, r in ratios(result).items()}}


def draw(results: Sequence[Result], path: Path) -> None:
    """A panel per kind of traffic, a bar per program; the figures as JSON beside the picture."""
    measured = [result for result in results if result.theirs_s]
    drawn = [_panel(list(group)) for _, group in groupby(measured, _place)]
    if drawn:
        panels.draw(drawn, path)
        panels.write(drawn, path.with_suffix(".json"))


def _panel(results: Sequence[Result]) -> Panel:
    bars = [Bar(result.peer, speed(result), is_ours=False) for result in results]
    bars += [Bar(name, speed, is_ours=True) for name, speed in our_speeds(results).items()]
    bars.sort(key=lambda bar: bar.speed)
    first = results[0]
    return Panel(first.traffic, first.what, _unit(first), tuple(bars))


def _unit(result: Result) -> str:
    return UNITS.get(result.task, "texts/s")
