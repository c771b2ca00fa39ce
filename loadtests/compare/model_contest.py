"""Models one after the other: all engines of one are open at once and take turns.

Ours run once a round beside every peer. What is done is kept, and what was refused, with why.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress

from loadtests.compare import report as reports
from loadtests.compare.comparison import Result, Side, admitted, compare_all
from loadtests.compare.connection import WorkerError
from loadtests.compare.environments import MODELS, NotAvailable
from loadtests.compare.models import Reference, reference_path
from loadtests.compare.peer import Peer
from loadtests.compare.traffic import Traffic
from loadtests.compare.worker import Work
from loadtests.load.lengths import mixed_sizes

errors = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is compared; nothing named means all."""

    peers: Sequence[str]
    precisions: Sequence[str]
    kinds: Sequence[str]  # of traffic, without the model: alone-8
    rounds: int
    threads: int
    is_quick: bool


@dataclass(frozen=True, slots=True)
class ModelContest:
    """Models by name, how each is written, and who takes part with it under which traffic."""

    titles: Mapping[str, str]  # the shape that a model has
    write: Callable[[Path, str], None]  # folder of all models, and a name
    ours: Callable[[str, Sequence[str]], list[Peer]]  # at these precisions
    peers: Callable[[str], list[Peer]]
    traffic: Mapping[str, Sequence[Traffic]]
    finish: Callable[[str, Sequence[Peer], Choice, Path], None] = lambda *_: None


def compare_models(
    contest: ModelContest,
    models: Sequence[str],
    choice: Choice,
    facts: Mapping[str, object],
    results: Path,
) -> None:
    """Install, check and compare, model by model."""
    for name in models:
        if name not in contest.titles:
            raise typer.BadParameter(f"model {name!r} is none of {list(contest.titles)}")
    for model in models or contest.titles:
        if not reference_path(MODELS, model).exists():
            with errors.status(f"{model}: weights in the shape of {contest.titles[model]}"):
                contest.write(MODELS, model)
        own, invited, absent = _installed(contest, model, choice)
        traffic = _traffic(contest, model, choice)
        for peer, fault in absent:
            for kind, _ in traffic:
                blank = _blank(peer, kind, facts)
                blank.fault = fault
                reports.keep(blank, results)
        with Progress(console=errors) as progress, ExitStack() as stack:
            bar = progress.add_task(f"{model}: opening", total=None)
            reference = Reference.read(reference_path(MODELS, model))
            everyone = [*own, *invited]
            sides, faults = admitted(stack, everyone, reference, choice.threads)
            for name, fault in faults.items():
                progress.console.print(f"[red]{name} is refused: {fault}")
            progress.update(bar, total=len(traffic))
            there = {side.name for side in sides}
            for kind, work in traffic:
                progress.update(bar, description=kind.name)
                blanks = {peer.name: _blank(peer, kind, facts) for peer in invited}
                for name in blanks.keys() - there:
                    blanks[name].fault = faults[name]
                _run(sides, blanks, work, choice.rounds, lambda each: reports.keep(each, results))
                progress.advance(bar)
        contest.finish(model, own, choice, results)


def _run(
    sides: Sequence[Side],
    blanks: dict[str, Result],
    work: Work,
    rounds: int,
    keep: Callable[[Result], None],
) -> None:
    going = {name: result for name, result in blanks.items() if not result.fault}
    try:
        compare_all(sides, going, work, rounds)
    except WorkerError as error:
        for result in going.values():
            result.fault = str(error)
    for result in blanks.values():
        keep(result)


def _installed(
    contest: ModelContest, model: str, choice: Choice
) -> tuple[list[Peer], list[Peer], list[tuple[Peer, str]]]:
    """Ours, the others that could be installed, and those that could not, each with why."""
    invited = [
        peer
        for peer in contest.peers(model)
        if (peer.in_quick or not choice.is_quick)
        and (not choice.peers or peer.name.startswith(tuple(choice.peers)))
    ]
    own = contest.ours(model, choice.precisions)
    ready: list[Peer] = []
    absent: list[tuple[Peer, str]] = []
    for peer in (*own, *invited):
        try:
            with errors.status(f"{model}: installing and converting for {peer.name}"):
                peer.install()
            ready.append(peer)
        except NotAvailable as fault:
            errors.print(f"[red]{peer.name}, {model}: {fault}")
            absent.append((peer, str(fault)))
    return (
        [peer for peer in own if peer in ready],
        [peer for peer in invited if peer in ready],
        [(peer, fault) for peer, fault in absent if peer in invited],
    )


def _traffic(contest: ModelContest, model: str, choice: Choice) -> list[tuple[Traffic, Work]]:
    chosen = []
    for kind in contest.traffic[model]:
        if not choice.kinds or kind.name.removeprefix(f"{model}-") in choice.kinds:
            make = kind.quick if choice.is_quick and kind.quick else kind.full
            chosen.append((kind, make(mixed_sizes)))
    return chosen


def _blank(peer: Peer, kind: Traffic, facts: Mapping[str, object]) -> Result:
    versions = peer.environment.versions()
    names = kind.name, kind.what, peer.task, peer.name, peer.precision
    return Result(*names, versions=versions, machine=dict(facts))
