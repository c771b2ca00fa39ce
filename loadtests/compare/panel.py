"""Panels: models one after the other, all programs of one open at once and taking turns.

Ours run once a round beside every peer. What is done is kept, and what was refused, with why.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress

from loadtests.compare import peers
from loadtests.compare import report as reports
from loadtests.compare.comparison import Result, Side, compare_all, verified
from loadtests.compare.connection import WorkerError
from loadtests.compare.conversions import task_of
from loadtests.compare.encoders import ENCODER_TRAFFIC, ENCODERS, write_encoder
from loadtests.compare.environments import MODELS, NotAvailable
from loadtests.compare.llamas import SHAPES, write_llama
from loadtests.compare.models import BERT, GPT2, Reference, reference_path, write_model
from loadtests.compare.peers import Program
from loadtests.compare.server_traffic import SERVER_TRAFFIC
from loadtests.compare.traffic import LLAMA_TRAFFIC, TRAFFIC, Traffic
from loadtests.compare.worker import Work
from loadtests.load.lengths import Sizes, mixed_sizes
from loadtests.load.turns import take_turns
from loadtests.measure import limits
from loadtests.measure.harness import show

errors = Console(stderr=True)
LIMIT_ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Choice:
    """What is compared; nothing named means all."""

    peers: Sequence[str] = ()  # beginnings of names
    precisions: Sequence[str] = ()  # of ours
    kinds: Sequence[str] = ()  # of traffic, without the model: alone-8
    rounds: int = 3
    threads: int = 1
    is_quick: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)  # of ours
    sizes: Sizes = mixed_sizes  # of rows of real lengths


@dataclass(frozen=True, slots=True)
class Panel:
    """Models by name, how each is written, and who takes part with it under which traffic."""

    what: str
    examples: str  # of kinds of traffic
    titles: Mapping[str, str]  # the shape that a model has
    write: Callable[[Path, str], None]  # folder of all models, and a name
    traffic: Mapping[str, Sequence[Traffic]]
    # Of a model, at these precisions and with these settings.
    ours: Callable[[str, Sequence[str], Mapping[str, object]], list[Program]] = peers.ours
    peers: Callable[[str], list[Program]] = peers.others
    finish: Callable[[str, Sequence[Program], Choice, Path], None] = lambda *_: None

    def selected(self, model: str, choice: Choice) -> list[Program]:
        """The chosen peers of a model."""
        beginnings = tuple(name.lower() for name in choice.peers)
        return [
            peer
            for peer in self.peers(model)
            if (peer.in_quick or not choice.is_quick)
            and (not beginnings or peer.name.lower().startswith(beginnings))
        ]

    def work(self, model: str, choice: Choice) -> list[tuple[Traffic, Work]]:
        """The chosen kinds of traffic of a model that the mode has."""
        chosen = []
        for kind in self.traffic[model]:
            make = kind.quick if choice.is_quick else kind.full
            if make and (not choice.kinds or _short(kind, model) in choice.kinds):
                chosen.append((kind, make(choice.sizes)))
        return chosen

    def write_missing(self, model: str) -> None:
        """The model and its reference, unless they are there."""
        if not reference_path(MODELS, model).exists():
            MODELS.mkdir(parents=True, exist_ok=True)
            with errors.status(f"{model}: weights in the shape of {self.titles[model]}"):
                self.write(MODELS, model)


def compare_models(
    panel: Panel,
    models: Sequence[str],
    choice: Choice,
    facts: Mapping[str, object],
    results: Path,
) -> None:
    """Install, check and compare, model by model."""
    _check_names(panel, models, choice)
    for model in models or panel.titles:
        traffic, selected = panel.work(model, choice), panel.selected(model, choice)
        if not traffic or not selected:
            continue
        panel.write_missing(model)
        own, _ = ready(model, panel.ours(model, choice.precisions, choice.settings))
        selected, absent = ready(model, selected)
        for peer, fault in absent:
            for kind, _ in traffic:
                blank = _blank(peer, kind, facts)
                blank.fault = fault
                reports.keep(blank, results)
        if not selected:
            continue
        with Progress(console=errors) as progress, ExitStack() as stack:
            bar = progress.add_task(f"{model}: opening", total=None)
            reference = Reference.read(reference_path(MODELS, model))
            everyone = [*own, *selected]
            sides, faults = verified(stack, everyone, reference, choice.threads)
            for name, fault in faults.items():
                progress.console.print(f"[red]{name} is refused: {fault}")
            progress.update(bar, total=len(traffic))
            there, our_names = {side.name for side in sides}, {peer.name for peer in own}
            if not there & our_names:
                raise typer.Exit(1)
            for kind, work in traffic:
                progress.update(bar, description=kind.name)
                blanks = {peer.name: _blank(peer, kind, facts) for peer in selected}
                for name in blanks.keys() - there:
                    blanks[name].fault = faults[name]
                ours = [side for side in sides if side.name in our_names]
                taking = [side for side in sides if side.name in blanks]
                fill(ours, taking, blanks, work, choice.rounds)
                for result in blanks.values():
                    reports.keep(result, results)
                progress.advance(bar)
        panel.finish(model, own, choice, results)


def fill(
    ours: Sequence[Side],
    others: Sequence[Side],
    blanks: Mapping[str, Result],
    work: Work,
    rounds: int,
) -> None:
    """Fill the results; where a worker of others fails, the rest begin again without it."""
    taking = {side.name: side for side in others}
    while taking:
        going = {name: blanks[name] for name in taking}
        try:
            compare_all([*ours, *taking.values()], going, work, rounds)
            break
        except WorkerError as error:
            failed = [error.worker] if error.worker in taking else list(taking)
            for name in failed:
                blanks[name].fault = str(error)
                del taking[name]


def ready(model: str, peers: Sequence[Program]) -> tuple[list[Program], list[tuple[Program, str]]]:
    """Install and convert: those that could be, and those that could not, each with why."""
    able: list[Program] = []
    absent: list[tuple[Program, str]] = []
    for peer in peers:
        try:
            with errors.status(f"{model}: installing and converting for {peer.name}"):
                peer.install()
            able.append(peer)
        except NotAvailable as fault:
            errors.print(f"[red]{peer.name}, {model}: {fault}")
            absent.append((peer, str(fault)))
    return able, absent


def _check_names(panel: Panel, models: Sequence[str], choice: Choice) -> None:
    """Raise a `BadParameter` for what is chosen and not there."""
    for name in models:
        if name not in panel.titles:
            raise typer.BadParameter(f"model {name!r} is none of {list(panel.titles)}")
    chosen = models or list(panel.titles)
    kinds = [_short(kind, model) for model in chosen for kind in panel.traffic[model]]
    for name in choice.kinds:
        if name not in kinds:
            raise typer.BadParameter(f"traffic {name!r} is none of {list(dict.fromkeys(kinds))}")
    known = [peer.name for model in chosen for peer in panel.peers(model)]
    for name in choice.peers:
        if not any(each.lower().startswith(name.lower()) for each in known):
            raise typer.BadParameter(
                f"no peer is called {name!r}; there are: {', '.join(dict.fromkeys(known))}"
            )


def _short(kind: Traffic, model: str) -> str:
    """The name of traffic without that of its model."""
    return kind.name.removeprefix(f"{model}-")


def _blank(peer: Program, kind: Traffic, facts: Mapping[str, object]) -> Result:
    versions = peer.environment.versions()
    names = kind.name, kind.what, peer.task, peer.name, peer.precision
    return Result(*names, versions=versions, machine=dict(facts))


def _limits(model: str, own: Sequence[Program], choice: Choice, results: Path) -> None:
    """The shares of the machine's limit that steps of our graphs reach, shown and kept."""
    graphs = {f"{model} {peer.precision}": _graph(peer) for peer in own}
    if graphs:
        ways = limits.ways_of(graphs, (1, 8, 32), limits.CONTEXT, choice.threads)
        figures = limits.figures(take_turns(ways, LIMIT_ROUNDS))
        show(figures, errors)
        path = results.parent / f"limits-{model}.json"
        path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


def _graph(peer: Program) -> Path:
    (graph,) = (
        path
        for path in Path(peer.folder, "model", "1").glob("model*.onnx")
        if not path.name.endswith(".prefill.onnx")
    )
    return graph


PANELS = {
    "engines": Panel(
        "Engines in process, for an encoder and a decoder.",
        "fixed, mixed-8 and others",
        {BERT: "BERT-base with two labels", GPT2: "GPT-2"},
        write_model,
        {
            model: tuple(kind for kind in TRAFFIC if kind.task == task_of(model))
            for model in (BERT, GPT2)
        },
    ),
    "servers": Panel(
        "Servers over the network of this machine, and the session without one.",
        "serve-real-32 and others",
        {name: ENCODERS[name].title for name in SERVER_TRAFFIC},
        write_encoder,
        SERVER_TRAFFIC,
        ours=partial(peers.ours, is_served=True),
        peers=partial(peers.others, is_served=True),
    ),
    "llamas": Panel(
        "Decoders of Llama's kind beside other engines, and the share of the machine's limit.",
        "alone-1, mixed-8 and others",
        {name: shape.title for name, shape in SHAPES.items()},
        write_llama,
        LLAMA_TRAFFIC,
        finish=_limits,
    ),
    "encoders": Panel(
        "Embedders and rerankers on texts of real lengths beside other engines, ours also served.",
        "real",
        {name: encoder.title for name, encoder in ENCODERS.items()},
        write_encoder,
        ENCODER_TRAFFIC,
    ),
}
