"""Ours and others, side by side.

    python -m loadtests.compare all --quick        what installs in minutes
    python -m loadtests.compare all                everything: an hour, and some 20 GB
    python -m loadtests.compare engines --peer openvino --ours int8
    python -m loadtests.compare servers --model minilm --peer litserve --peer "bare session"
    python -m loadtests.compare llamas --quick     decoders of Llama's kind, in 12 minutes
    python -m loadtests.compare encoders           embedders and rerankers, real lengths
    python -m loadtests.compare report             what was measured so far, once more
    python -m loadtests.compare overview           the README's picture, from figures kept in docs/

Each peer is installed into its own environment below `build/compare/`, opens the same models as
ours, and is refused if its outputs disagree with float32 transformers. All that are left are open
at once and take turns, A B C C B A, and each ratio is of one round. `*_peers.py` declare the peers,
`*_contest.py` and `traffic.py` the load.
"""

import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtests.compare import panels
from loadtests.compare import report as reports
from loadtests.compare.comparison import admitted
from loadtests.compare.encoder_contest import ENCODER_CONTEST
from loadtests.compare.encoder_table import encoder_tables
from loadtests.compare.engine_contest import ENGINE_CONTEST
from loadtests.compare.environments import BUILD, MODELS
from loadtests.compare.llama_contest import LLAMAS
from loadtests.compare.model_contest import Choice, ModelContest, compare_models, ready
from loadtests.compare.models import BERT, Reference, reference_path
from loadtests.compare.peer import Peer
from loadtests.compare.server_contest import SERVER_CONTEST
from loadtests.compare.server_table import server_tables
from loadtests.load.lengths import Sizes, mixed_sizes, sizes_of_texts
from loadtests.load.machine import machine
from service.runtime.cpus import available_cpus

app = typer.Typer(help=__doc__, no_args_is_help=True)
console = Console()
RESULTS = BUILD / "results"

PeerNames = Annotated[
    list[str] | None, typer.Option("--peer", help="Peers whose names begin so; all by default.")
]
Ours = Annotated[
    list[str] | None, typer.Option("--ours", help="Precisions that `attendant export` knows.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", help="NAME=VALUE of ours; or, of `servers`, of one more server of ours."
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Turns of every program.")]
Threads = Annotated[int, typer.Option(min=1, help="Of every engine.")]
Quick = Annotated[bool, typer.Option("--quick", help="Few peers, little work.")]
Picture = Annotated[Path | None, typer.Option(help="Where to draw; by default beside the results.")]
CPUS = available_cpus()
TERMINATED = 128 + signal.SIGTERM  # as shells have it


@dataclass(frozen=True, slots=True)
class Named:
    """A contest as a command."""

    contest: ModelContest
    what: str
    kinds: str  # examples of traffic


CONTESTS = {
    "engines": Named(
        ENGINE_CONTEST,
        "Engines in process, for an encoder and a decoder.",
        "fixed, mixed-8 and others",
    ),
    "servers": Named(
        SERVER_CONTEST,
        "Servers over the network of this machine, and the session without one.",
        "serve-real-32 and others",
    ),
    "llamas": Named(
        LLAMAS,
        "Decoders of Llama's kind beside other engines, and the share of the machine's limit.",
        "alone-1, mixed-8 and others",
    ),
    "encoders": Named(
        ENCODER_CONTEST,
        "Embedders and rerankers on texts of real lengths beside other engines, ours also served.",
        "real",
    ),
}


def _settings(named: Sequence[str] | None) -> dict[str, object]:
    values: dict[str, object] = {}
    for pair in named or ():
        name, _, text = pair.partition("=")
        if name in values:
            raise typer.BadParameter(f"--setting {name} is given twice: a run has one value of it")
        is_flag = text in ("true", "false")
        values[name] = text == "true" if is_flag else int(text) if text.isdecimal() else text
    return values


@app.command()
def models() -> None:
    """Write BERT, GPT-2 and what transformers makes of them, unless they are there."""
    for model in ENGINE_CONTEST.titles:
        ENGINE_CONTEST.write_missing(model)


def _invited(
    names: Sequence[str] | None, *, quick: bool
) -> Iterator[tuple[str, ModelContest, list[Peer]]]:
    """Of engines and servers: each model with its peers that could be installed."""
    found = False
    for contest in (ENGINE_CONTEST, SERVER_CONTEST):
        for model in contest.titles:
            if invited := contest.invited(model, Choice(names or (), is_quick=quick)):
                found = True
                contest.write_missing(model)
                yield model, contest, ready(model, invited)[0]
    if not found:
        raise typer.BadParameter(f"no engine or server is called {', '.join(names or ())}")


@app.command()
def install(peer: PeerNames = None, quick: Quick = False) -> None:
    """Environments and converted models, ahead of time."""
    for model, _, invited in _invited(peer, quick=quick):
        for each in invited:
            console.print(each.name, model, each.environment.versions())


@app.command()
def check(peer: PeerNames = None, ours_too: bool = True) -> None:
    """Whether the outputs of those that are installed agree with the reference."""
    for model, contest, invited in _invited(peer, quick=False):
        own = ready(model, contest.ours(model, (), {}))[0] if ours_too else []
        reference = Reference.read(reference_path(MODELS, model))
        for each in (*own, *invited):
            with ExitStack() as stack:
                _, faults = admitted(stack, [each], reference, CPUS)
            console.print(each.name, model, faults.get(each.name, "agrees"))


def _command_of(name: str) -> None:
    """Add a command; all contests have the same options."""
    named = CONTESTS[name]

    @app.command(name, help=named.what)
    def compare(
        model: Annotated[
            list[str] | None,
            typer.Option(help=f"{', '.join(named.contest.titles)}; all by default."),
        ] = None,
        peer: PeerNames = None,
        ours: Ours = None,
        traffic: Annotated[
            list[str] | None, typer.Option(help=f"{named.kinds}; all by default.")
        ] = None,
        texts: Annotated[
            list[Path] | None,
            typer.Option(
                help="Real texts, one a line, whose lengths the rows of `real` have.",
                hidden=named.contest is not ENGINE_CONTEST,
            ),
        ] = None,
        setting: Settings = None,
        rounds: Rounds = 3,
        threads: Threads = CPUS,
        quick: Quick = False,
        picture: Picture = None,
    ) -> None:
        if texts and named.contest is not ENGINE_CONTEST:
            raise typer.BadParameter(
                f"--texts is an option of engines; {name} have their own texts"
            )
        values, sizes = _settings(setting), _sizes(texts or ())
        choice = Choice(
            peer or (), ours or (), traffic or (), rounds, threads, quick, values, sizes
        )
        _compare(name, model or (), choice, picture)


for _name in CONTESTS:
    _command_of(_name)


def _compare(name: str, models: Sequence[str], choice: Choice, picture: Path | None) -> None:
    """One contest, and its tables and picture."""
    contest = CONTESTS[name].contest
    facts = machine() | {"threads": choice.threads}
    compare_models(contest, models, choice, facts, RESULTS)
    names = {kind.name for kinds in contest.traffic.values() for kind in kinds}
    _show(names, picture or BUILD / f"{name}.png")


@app.command(name="all")
def everything(rounds: Rounds = 3, threads: Threads = CPUS, quick: Quick = False) -> None:
    """Engines, then servers."""
    choice = Choice(rounds=rounds, threads=threads, is_quick=quick)
    for name in ("engines", "servers"):
        _compare(name, (), choice, None)


def _sizes(files: Sequence[Path]) -> Sizes:
    """Lengths in tokens of rows of real lengths: of these texts, or as counted in others."""
    if not files:
        return mixed_sizes
    ENGINE_CONTEST.write_missing(BERT)
    return sizes_of_texts(files, MODELS / BERT / "tokenizer.json")


@app.command()
def report(picture: Picture = None) -> None:
    """Tables, JSON and picture of all that was kept; encoders.md, servers.md for the docs."""
    _show(None, picture or BUILD / "picture.png")


def _show(names: Collection[str] | None, picture: Path) -> None:
    """Tables and a picture of these kinds of traffic, or of all; the files always have all."""
    results = reports.kept(RESULTS)
    shown = [each for each in results if names is None or each.traffic in names]
    reports.show(shown, console)
    reports.draw(shown, picture)
    reports.write_json(results, BUILD / "compare.json")
    (BUILD / "encoders.md").write_text(encoder_tables(results))
    (BUILD / "servers.md").write_text(server_tables(results))


@app.command()
def overview(figures: Path = panels.FIGURES, picture: Path = panels.OVERVIEW) -> None:
    """Draw the README's picture from figures that are kept with the project."""
    panels.draw_overview(panels.read(figures), picture)


if __name__ == "__main__":
    # Programs that are stopped until their turn would outlive a process that just ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    app()
