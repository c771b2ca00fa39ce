"""Results as tables and result files; rows that we lose are shown like the others."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, groupby
from pathlib import Path

import numpy as np
from rich.console import Console

from loadtests.compare.comparison import Result
from loadtests.compare.encoders import ENCODER_TRAFFIC
from loadtests.compare.server_traffic import SERVER_TRAFFIC
from loadtests.compare.traffic import CLASSIFY, GENERATE, LLAMA_TRAFFIC, TRAFFIC
from loadtests.load.turns import Spread, per_second, spread, times_faster
from loadtests.measure import harness, results
from loadtests.measure.records import TIMES, Figure

PERCENTS = (50, 99)
# By the name of a result file: the subject of its page, and the kinds of traffic.
SUBJECTS = {
    "compare-engines": (
        "Encoders beside other engines",
        tuple(kind for kind in TRAFFIC if kind.task == CLASSIFY),
    ),
    "compare-decoders": (
        "Decoders beside other engines",
        tuple(kind for kind in TRAFFIC if kind.task == GENERATE),
    ),
    "compare-llamas": ("Decoders beside other engines", tuple(chain(*LLAMA_TRAFFIC.values()))),
    "compare-encoders": (
        "Encoders beside other engines",
        tuple(chain(*ENCODER_TRAFFIC.values())),
    ),
    "compare-servers": ("Beside other servers", tuple(chain(*SERVER_TRAFFIC.values()))),
}
ORDER = [kind.name for _, kinds in SUBJECTS.values() for kind in kinds]
UNITS = {GENERATE: "tokens/s", CLASSIFY: "rows/s"}


def keep(result: Result, folder: Path) -> None:
    """Save one result: a later run of the same peer and traffic replaces it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{result.traffic}--{result.peer}".replace(" ", "-").replace("/", "-")
    (folder / f"{name}.json").write_text(json.dumps(asdict(result)))


def kept(folder: Path) -> list[Result]:
    """All that were kept, by traffic, slowest last."""
    found = [Result(**json.loads(path.read_text())) for path in sorted(folder.glob("*--*.json"))]
    return sorted(found, key=lambda result: (_place(result), -speed(result)))


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


def figures(found: Sequence[Result]) -> list[Figure]:
    """A table per kind of traffic: ours first, then the peers from fast to slow."""
    return [each for _, group in groupby(found, _place) for each in _of_traffic(list(group))]


def _of_traffic(group: Sequence[Result]) -> list[Figure]:
    table, unit = f"{group[0].traffic}: {group[0].what}", _unit(group[0])
    rates = {name: spread(values) for name, values in _our_rates(group).items()}
    rates |= {
        result.peer: spread([result.amount / each for each in result.theirs_s])
        for result in group
        if result.theirs_s
    }
    over = {result.peer: ratios(result) for result in group}
    waits = _all_rounds(result.latencies_s for result in group)
    firsts = _all_rounds(result.first_s for result in group)
    found = []
    for row, own in rates.items():
        found.append(Figure.of(row, unit, own, table=table))
        found += [
            Figure.of(row, f"{name} over it", ratio, TIMES, table=table)
            for name, ratio in over.get(row, {}).items()
        ]
        marks = {f"p{mark}": np.percentile(waits[row], mark) for mark in PERCENTS if row in waits}
        if row in firsts and row not in waits:
            marks["first token, p50"] = np.median(firsts[row])
        found += [
            Figure.of(row, name, spread([float(value) * 1e3]), "ms", table=table)
            for name, value in marks.items()
        ]
    return found


def remarks(found: Sequence[Result]) -> list[str]:
    """How outputs agree with the reference, and why a program has no figures."""
    lines: dict[str, None] = {}
    for result in found:
        agreements = {**result.our_agreement, result.peer: result.fault or result.agreement}
        lines |= dict.fromkeys(
            f"{result.traffic}, {name}: {text}" for name, text in agreements.items() if text
        )
    return list(lines)


def show(found: Sequence[Result], console: Console) -> None:
    """Tables on the terminal, and what is to be said of them."""
    for machine in {json.dumps(result.machine) for result in found}:
        console.print(f"[dim]{machine}")
    harness.show(figures(found), console)
    for line in remarks(found):
        console.print(line)


def published(found: Sequence[Result]) -> list[results.Result]:
    """A result file for each subject, as pages are written from."""
    files = []
    for name, (page, kinds) in SUBJECTS.items():
        names = {kind.name for kind in kinds}
        if own := [result for result in found if result.traffic in names and result.theirs_s]:
            files.append(_file(name, page, own))
    return files


def _file(name: str, page: str, own: Sequence[Result]) -> results.Result:
    latest = max(own, key=lambda result: result.at)
    commands = dict.fromkeys(f"python -m loadtests.compare {result.command}" for result in own)
    rounds = {
        f"{result.traffic}: {program}": [
            {"seconds": seconds, "amount": float(result.amount)} for seconds in all_s
        ]
        for result in own
        for program, all_s in {**result.ours_s, result.peer: result.theirs_s}.items()
    }
    return results.Result(
        name=name,
        page=page,
        claim=f"{page}: outputs checked, then all programs in turns",
        commands=list(commands),
        date=latest.at[:10],
        machine=latest.machine,
        versions=dict(pair for result in own for pair in sorted(result.versions.items())),
        figures=figures(own),
        commit=results.commit(),
        notes=remarks(own),
        rounds=rounds,
    )


def _our_rates(found: Iterable[Result]) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {}
    for result in found:
        for name, seconds in result.ours_s.items():
            rates.setdefault(name, []).extend(result.amount / each for each in seconds)
    return rates


def _all_rounds(each_result: Iterable[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Seconds by program, over all rounds with all others."""
    found: dict[str, list[float]] = {}
    for seconds in each_result:
        for name, values in seconds.items():
            if values:
                found.setdefault(name, []).extend(values)
    return found


def _unit(result: Result) -> str:
    return UNITS.get(result.task, "texts/s")
