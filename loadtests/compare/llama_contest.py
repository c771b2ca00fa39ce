"""Decoders of Llama's kind beside other engines: all of one model are open at once and take turns.

    python -m loadtests.compare llamas --quick     the rows of docs/benchmarks.md
    python -m loadtests.compare llamas --model smollm2 --peer llama.cpp --ours int8

Ours run once a round beside every peer. At the end the same graphs are timed step by step beside
what the memory and the multipliers of this machine can do (`loadtests/measure/limits.py`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress

from loadtests.compare import report as reports
from loadtests.compare.comparison import Result, Side, admitted, compare_all
from loadtests.compare.connection import WorkerError
from loadtests.compare.environments import MODELS, NotAvailable
from loadtests.compare.llama_peers import llama_peers, our_llamas
from loadtests.compare.llamas import SHAPES, reference_path, write_llama
from loadtests.compare.models import Reference
from loadtests.compare.peer import Peer
from loadtests.compare.traffic import LLAMA_TRAFFIC, Traffic
from loadtests.compare.worker import Work
from loadtests.load.lengths import mixed_sizes
from loadtests.measure import limits

errors = Console(stderr=True)
LIMIT_ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Choice:
    """What is compared; nothing named means all."""

    peers: Sequence[str]
    precisions: Sequence[str]
    kinds: Sequence[str]  # of traffic, without the model: alone-8
    rounds: int
    threads: int
    is_quick: bool


def compare_llamas(
    models: Sequence[str], choice: Choice, facts: Mapping[str, object], results: Path
) -> None:
    """Install, check and compare, model by model; what is done is kept."""
    for name in models:
        if name not in SHAPES:
            raise typer.BadParameter(f"model {name!r} is none of {list(SHAPES)}")
    for model in models or SHAPES:
        _write(model)
        own, invited = _installed(model, choice)
        with Progress(console=errors) as progress, ExitStack() as stack:
            bar = progress.add_task(f"{model}: opening", total=None)
            reference = Reference.read(reference_path(MODELS, model))
            everyone = [*own, *invited]
            sides, faults = admitted(stack, everyone, reference, choice.threads)
            for name, fault in faults.items():
                progress.console.print(f"[red]{name} is refused: {fault}")
            traffic = _traffic(model, choice)
            progress.update(bar, total=len(traffic))
            there = {side.name for side in sides}
            for kind, work in traffic:
                progress.update(bar, description=kind.name)
                blanks = {peer.name: _blank(peer, kind, facts) for peer in invited}
                for name in blanks.keys() - there:
                    blanks[name].fault = faults[name]
                _run(sides, blanks, work, choice.rounds, lambda each: reports.keep(each, results))
                progress.advance(bar)
        _limits(model, own, choice, results)


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


def _write(model: str) -> None:
    if not reference_path(MODELS, model).exists():
        with errors.status(f"{model}: random weights in the shape of {SHAPES[model].title}"):
            write_llama(MODELS, model)


def _installed(model: str, choice: Choice) -> tuple[list[Peer], list[Peer]]:
    """Ours and the others that could be installed."""
    invited = [
        peer
        for peer in llama_peers(model)
        if (peer.in_quick or not choice.is_quick)
        and (not choice.peers or peer.name.startswith(tuple(choice.peers)))
    ]
    ready: list[list[Peer]] = []
    for peers in (our_llamas(model, choice.precisions), invited):
        ready.append([])
        for peer in peers:
            try:
                with errors.status(f"{model}: installing and converting for {peer.name}"):
                    peer.install()
                ready[-1].append(peer)
            except NotAvailable as fault:
                errors.print(f"[red]{peer.name}, {model}: {fault}")
    return ready[0], ready[1]


def _traffic(model: str, choice: Choice) -> list[tuple[Traffic, Work]]:
    chosen = []
    for kind in LLAMA_TRAFFIC[model]:
        if not choice.kinds or kind.name.removeprefix(f"{model}-") in choice.kinds:
            make = kind.quick if choice.is_quick and kind.quick else kind.full
            chosen.append((kind, make(mixed_sizes)))
    return chosen


def _blank(peer: Peer, kind: Traffic, facts: Mapping[str, object]) -> Result:
    versions = peer.environment.versions()
    names = kind.name, kind.what, peer.task, peer.name, peer.precision
    return Result(*names, versions=versions, machine=dict(facts))


def _limits(model: str, own: Sequence[Peer], choice: Choice, results: Path) -> None:
    """The shares of the machine's limit that steps of our graphs reach, shown and kept."""
    graphs = {f"{model} {peer.precision}": _graph(peer) for peer in own}
    if graphs:
        shares = limits.shares_of(graphs, (1, 8, 32), limits.CONTEXT, LIMIT_ROUNDS, choice.threads)
        limits.show(shares, errors)
        path = results.parent / f"limits-{model}.json"
        path.write_text(json.dumps([asdict(share) for share in shares], indent=1))


def _graph(peer: Peer) -> Path:
    (graph,) = (
        path
        for path in Path(peer.folder, "model", "1").glob("model*.onnx")
        if not path.name.endswith(".prefill.onnx")
    )
    return graph
