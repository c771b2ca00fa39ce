"""Ours and others, side by side.

    python -m loadtests.compare all --quick        what installs in minutes
    python -m loadtests.compare all                everything: hours, and some 20 GB
    python -m loadtests.compare engines --peer openvino --ours int8
    python -m loadtests.compare servers --model minilm --peer litserve --peer "bare session"
    python -m loadtests.compare llamas --quick     decoders of Llama's kind, in 12 minutes
    python -m loadtests.compare encoders           embedders and rerankers, real lengths
    python -m loadtests.compare report             what was measured so far, once more
    python -m loadtests.compare overview           README's picture, from loadtests/results

Each peer is installed into its own environment below `build/compare/`, opens the same models as
ours, and is refused if its outputs disagree with float32 transformers. All that are left are open
at once and take turns, A B C C B A, and each ratio is of one round. `peers.py` declares the peers,
`panel.py` and `traffic.py` the load.
"""

import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtests.compare import charts
from loadtests.compare import report as reports
from loadtests.compare.environments import BUILD, MODELS
from loadtests.compare.models import BERT
from loadtests.compare.panel import PANELS, Choice, compare_models
from loadtests.load.lengths import Sizes, mixed_sizes, sizes_of_texts
from loadtests.load.machine import machine
from loadtests.measure.results import read_all, write
from service.runtime.cpus import available_cpus

app = typer.Typer(help=__doc__, no_args_is_help=True)
console = Console()
RESULTS = BUILD / "results"
ENGINES, SERVERS = PANELS["engines"], PANELS["servers"]

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
CPUS = available_cpus()
TERMINATED = 128 + signal.SIGTERM  # as shells have it


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
    for model in ENGINES.titles:
        ENGINES.write_missing(model)


def _command_of(name: str) -> None:
    """Add a command; all contests have the same options."""
    panel = PANELS[name]

    @app.command(name, help=panel.what)
    def compare(
        model: Annotated[
            list[str] | None,
            typer.Option(help=f"{', '.join(panel.titles)}; all by default."),
        ] = None,
        peer: PeerNames = None,
        ours: Ours = None,
        traffic: Annotated[
            list[str] | None, typer.Option(help=f"{panel.examples}; all by default.")
        ] = None,
        texts: Annotated[
            list[Path] | None,
            typer.Option(
                help="Real texts, one a line, whose lengths the rows of `real` have.",
                hidden=name != "engines",
            ),
        ] = None,
        setting: Settings = None,
        rounds: Rounds = 3,
        threads: Threads = CPUS,
        quick: Quick = False,
    ) -> None:
        if texts and name != "engines":
            raise typer.BadParameter(
                f"--texts is an option of engines; {name} have their own texts"
            )
        values, sizes = _settings(setting), _sizes(texts or ())
        choice = Choice(
            peer or (), ours or (), traffic or (), rounds, threads, quick, values, sizes
        )
        _compare(name, model or (), choice)


for _name in PANELS:
    _command_of(_name)


def _compare(name: str, models: Sequence[str], choice: Choice) -> None:
    """One contest, and its tables."""
    panel = PANELS[name]
    facts = machine() | {"threads": choice.threads}
    compare_models(panel, models, choice, facts, RESULTS)
    _show({kind.name for kinds in panel.traffic.values() for kind in kinds})


@app.command(name="all")
def everything(rounds: Rounds = 3, threads: Threads = CPUS, quick: Quick = False) -> None:
    """Engines, then servers."""
    choice = Choice(rounds=rounds, threads=threads, is_quick=quick)
    for name in ("engines", "servers"):
        _compare(name, (), choice)


def _sizes(files: Sequence[Path]) -> Sizes:
    """Lengths in tokens of rows of real lengths: of these texts, or as counted in others."""
    if not files:
        return mixed_sizes
    ENGINES.write_missing(BERT)
    return sizes_of_texts(files, MODELS / BERT / "tokenizer.json")


@app.command()
def report() -> None:
    """Tables and result files of all that was kept."""
    _show()


def _show(names: Collection[str] | None = None) -> None:
    """Tables of these kinds of traffic, or of all; the files always have all."""
    results = reports.kept(RESULTS)
    shown = [each for each in results if names is None or each.traffic in names]
    reports.show(shown, console)
    for result in reports.published(results):
        write(result, BUILD / "figures")


@app.command()
def overview(picture: Path = charts.OVERVIEW) -> None:
    """Draw README's picture from the result files of the project."""
    charts.draw_overview(read_all(), picture)


if __name__ == "__main__":
    # Programs that are stopped until their turn would outlive a process that just ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    app()
