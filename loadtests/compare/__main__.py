"""Ours and others, side by side.

    python -m loadtests.compare all --quick        what installs in minutes
    python -m loadtests.compare all                everything: an hour, and some 20 GB
    python -m loadtests.compare engines --peer openvino --ours int8
    python -m loadtests.compare llamas --quick     decoders of Llama's kind, in 12 minutes
    python -m loadtests.compare encoders           embedders and rerankers, real lengths
    python -m loadtests.compare report             what was measured so far, once more
    python -m loadtests.compare overview           the README's picture, from figures kept in docs/

Each peer is installed into its own environment below `build/compare/`, opens the same two models,
and is refused if its outputs disagree with float32 transformers. Then it takes turns with ours,
A B B A, and each ratio is of one round. `peers.py` declares the peers, `traffic.py` the load.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from loadtests.compare import panels
from loadtests.compare import report as reports
from loadtests.compare.comparison import Result, admitted, compare_peer
from loadtests.compare.encoder_contest import ENCODER_CONTEST
from loadtests.compare.encoder_table import encoder_tables
from loadtests.compare.environments import BUILD, MODELS, NotAvailable
from loadtests.compare.llama_contest import LLAMAS
from loadtests.compare.machine import machine
from loadtests.compare.model_contest import Choice, ModelContest, compare_models
from loadtests.compare.models import BERT, Reference, write_models
from loadtests.compare.peer import Peer
from loadtests.compare.peers import ENGINES, SERVERS, our_engines, our_servers
from loadtests.compare.traffic import CLASSIFY, GENERATE, SERVER_TRAFFIC, TRAFFIC, Traffic
from loadtests.compare.worker import Work
from loadtests.load.lengths import mixed_sizes, sizes_of_texts
from service.runtime.cpus import available_cpus

app = typer.Typer(help=__doc__, no_args_is_help=True)
console = Console()
errors = Console(stderr=True)
RESULTS = BUILD / "results"

PeerNames = Annotated[
    list[str] | None, typer.Option("--peer", help="Peers whose names begin so; all by default.")
]
Ours = Annotated[
    list[str] | None, typer.Option("--ours", help="Precisions that `attendant export` knows.")
]
Kinds = Annotated[
    list[str] | None, typer.Option("--traffic", help="Kinds of traffic.py; all by default.")
]
Texts = Annotated[
    list[Path] | None, typer.Option("--texts", help="Real texts, one a line, for `real`.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", help="NAME=VALUE of ours' generation engine, or of one more server of ours."
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Counted rounds after one that warms up.")]
Threads = Annotated[int, typer.Option(min=1, help="Of every engine.")]
Quick = Annotated[bool, typer.Option("--quick", help="Few peers, little work.")]
Picture = Annotated[Path | None, typer.Option(help="Where to draw; by default beside the results.")]
CPUS = available_cpus()


@dataclass(frozen=True, slots=True)
class Contest:
    """Peers of one kind, their traffic, and those of ours that they are compared with."""

    what: str
    peers: Sequence[Peer]
    traffic: Sequence[Traffic]
    ours: Callable[[str, Sequence[str] | None, Mapping[str, object]], list[Peer]]


CONTESTS = {
    "engines": Contest(
        "Engines in process: batches for encoders, requests in flight for decoders.",
        ENGINES,
        TRAFFIC,
        our_engines,
    ),
    "servers": Contest(
        "Servers over the network of this machine, ours through gRPC.",
        SERVERS,
        SERVER_TRAFFIC,
        our_servers,
    ),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """Traffic whose work is made."""

    traffic: Traffic
    work: Work


def chosen_peers(peers: Sequence[Peer], names: Sequence[str] | None, *, quick: bool) -> list[Peer]:
    """Peers by the beginnings of their names; with `quick` only the quick ones."""
    found = [
        peer
        for peer in peers
        if (not names or any(peer.name.lower().startswith(name.lower()) for name in names))
        and (peer.in_quick or not quick)
    ]
    if not found:
        known = ", ".join(dict.fromkeys(peer.name for peer in peers))
        raise typer.BadParameter(f"no peer is called so; there are: {known}")
    return found


def chosen_kinds(
    known: Sequence[Traffic], names: Sequence[str] | None, texts: Sequence[Path], *, quick: bool
) -> list[Kind]:
    """The chosen kinds of traffic, with their work."""
    for name in names or ():
        if name not in (kind.name for kind in known):
            raise typer.BadParameter(f"traffic {name!r} is none of {[kind.name for kind in known]}")
    tokenizer = MODELS / BERT / "tokenizer.json"
    sizes = sizes_of_texts(texts, tokenizer) if texts else mixed_sizes
    kinds = []
    for kind in known:
        make = kind.quick if quick else kind.full
        if make is not None and (not names or kind.name in names):
            kinds.append(Kind(kind, make(sizes)))
    return kinds


def prepared(peers: Sequence[Peer]) -> tuple[list[Peer], list[tuple[Peer, str]]]:
    """Install what is missing: those that are ready, and those that cannot be, each with why."""
    ready, absent = [], []
    with Progress(console=errors) as progress:
        task = progress.add_task("install", total=len(peers))
        for peer in peers:
            progress.update(task, description=peer.name, advance=1)
            try:
                peer.install()
                ready.append(peer)
            except NotAvailable as fault:
                progress.console.print(f"[red]{peer.name}, {peer.task}: {fault}")
                absent.append((peer, str(fault)))
    return ready, absent


def run(
    peers: Sequence[Peer],
    own: Sequence[Peer],
    kinds: Sequence[Kind],
    facts: Mapping[str, object],
    threads: int,
    rounds: int,
) -> None:
    """All peers of one task in turn; every result is kept as soon as it is there."""
    reference = Reference.read(MODELS / "reference.json")
    with Progress(console=errors) as progress, ExitStack() as stack:
        bar = progress.add_task("", total=len(peers) * len(kinds))
        sides, faults = admitted(stack, own, reference, threads)
        for name, fault in faults.items():
            progress.console.print(f"[red]{name} is refused: {fault}")
        if not sides:
            raise typer.Exit(1)
        for peer in peers:
            progress.update(bar, description=f"{peer.name}, {peer.task}")
            traffic = [
                (_blank(peer, kind.traffic, facts), kind.work)
                for kind in kinds
                if peer.can_do(kind.work)
            ]
            for result in compare_peer(peer, sides, traffic, reference, threads, rounds):
                reports.keep(result, RESULTS)
                progress.advance(bar)


def _blank(peer: Peer, kind: Traffic, facts: Mapping[str, object], fault: str = "") -> Result:
    versions = peer.environment.versions()
    names = kind.name, kind.what, peer.task, peer.name, peer.precision
    return Result(*names, versions=versions, fault=fault, machine=dict(facts))


def _compare(
    contest: Contest,
    names: list[str] | None,
    precisions: list[str] | None,
    names_of_traffic: list[str] | None,
    texts: list[Path] | None,
    settings: list[str] | None,
    rounds: int,
    threads: int,
    quick: bool,
) -> None:
    models()
    kinds = chosen_kinds(contest.traffic, names_of_traffic, texts or (), quick=quick)
    peers = chosen_peers(contest.peers, names, quick=quick)
    facts = machine() | {"threads": threads}
    for task in (CLASSIFY, GENERATE):
        own_kinds = [kind for kind in kinds if kind.traffic.task == task]
        invited = [peer for peer in peers if peer.task == task]
        if own_kinds and invited:
            own, _ = prepared(contest.ours(task, precisions, _settings(settings)))
            ready, absent = prepared(invited)
            for peer, fault in absent:
                for kind in own_kinds:
                    reports.keep(_blank(peer, kind.traffic, facts, fault), RESULTS)
            if ready:
                run(ready, own, own_kinds, facts, threads, rounds)


def _settings(named: Sequence[str] | None) -> dict[str, object]:
    values: dict[str, object] = {}
    for pair in named or ():
        name, _, text = pair.partition("=")
        is_flag = text in ("true", "false")
        values[name] = text == "true" if is_flag else int(text) if text.isdecimal() else text
    return values


@app.command()
def models() -> None:
    """Write the two models and what transformers makes of them, unless they are there."""
    if (MODELS / "reference.json").exists():
        return
    MODELS.mkdir(parents=True, exist_ok=True)
    with errors.status("two models of random weights"):
        write_models(MODELS)


@app.command()
def install(peer: PeerNames = None, quick: Quick = False) -> None:
    """Environments and converted models, ahead of time."""
    models()
    ready, _ = prepared(chosen_peers((*ENGINES, *SERVERS), peer, quick=quick))
    for each in ready:
        console.print(each.name, each.task, each.environment.versions())


@app.command()
def check(peer: PeerNames = None, ours_too: bool = True) -> None:
    """Whether the outputs of those that are installed agree with the reference."""
    models()
    reference = Reference.read(MODELS / "reference.json")
    own = [
        each
        for contest in CONTESTS.values()
        for task in (CLASSIFY, GENERATE)
        for each in contest.ours(task, None, {})
    ]
    others = chosen_peers((*ENGINES, *SERVERS), peer, quick=False)
    ready, _ = prepared([*(own if ours_too else ()), *others])
    for each in ready:
        with ExitStack() as stack:
            _, faults = admitted(stack, [each], reference, CPUS)
        console.print(each.name, each.task, faults.get(each.name, "agrees"))


def _command_of(name: str) -> None:
    """Add a command; engines and servers have the same options."""

    @app.command(name, help=CONTESTS[name].what)
    def compare(
        peer: PeerNames = None,
        ours: Ours = None,
        traffic: Kinds = None,
        texts: Texts = None,
        setting: Settings = None,
        rounds: Rounds = 5,
        threads: Threads = CPUS,
        quick: Quick = False,
        picture: Picture = None,
    ) -> None:
        _compare(CONTESTS[name], peer, ours, traffic, texts, setting, rounds, threads, quick)
        report(picture)


for _name in CONTESTS:
    _command_of(_name)


@app.command(name="all")
def everything(
    rounds: Rounds = 3,
    threads: Threads = CPUS,
    quick: Quick = False,
    picture: Picture = None,
) -> None:
    """Engines, then servers."""
    for contest in CONTESTS.values():
        _compare(contest, None, None, None, None, None, rounds, threads, quick)
    report(picture)


def _command_of_models(name: str, contest: ModelContest, what: str, kinds: str) -> None:
    """Add a command that compares models one after the other."""

    @app.command(name, help=what)
    def compare(
        model: Annotated[
            list[str] | None, typer.Option(help=f"{', '.join(contest.titles)}; all by default.")
        ] = None,
        peer: PeerNames = None,
        ours: Ours = None,
        traffic: Annotated[list[str] | None, typer.Option(help=f"{kinds}; all by default.")] = None,
        rounds: Rounds = 3,
        threads: Threads = CPUS,
        quick: Quick = False,
        picture: Picture = None,
    ) -> None:
        choice = Choice(peer or (), ours or (), traffic or (), rounds, threads, quick)
        facts = machine() | {"threads": threads}
        compare_models(contest, model or (), choice, facts, RESULTS)
        report(None)
        names = {kind.name for kinds in contest.traffic.values() for kind in kinds}
        own = [result for result in reports.kept(RESULTS) if result.traffic in names]
        reports.draw(own, picture or BUILD / f"{name}.png")


_command_of_models(
    "llamas",
    LLAMAS,
    "Decoders of Llama's kind beside other engines, and the share of the machine's limit.",
    "alone-1, mixed-8 and others",
)
_command_of_models(
    "encoders",
    ENCODER_CONTEST,
    "Embedders and rerankers on texts of real lengths beside other engines, ours also served.",
    "real",
)


@app.command()
def report(picture: Picture = None) -> None:
    """Tables, JSON and picture of all that was kept, and encoders.md for docs/benchmarks.md."""
    results = reports.kept(RESULTS)
    reports.show(results, console)
    reports.write_json(results, BUILD / "compare.json")
    reports.draw(results, picture or BUILD / "picture.png")
    (BUILD / "encoders.md").write_text(encoder_tables(results))


@app.command()
def overview(figures: Path = panels.FIGURES, picture: Path = panels.OVERVIEW) -> None:
    """Draw the README's picture: four panels of figures that are kept with the project."""
    panels.draw_overview(panels.read(figures), picture)


if __name__ == "__main__":
    app()
