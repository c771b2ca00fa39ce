"""The comparison with peers, without any: a fake worker that runs under our own interpreter."""

import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import loadtests.compare.__main__ as compare
import loadtests.compare.panel as panel_module
from loadtests.compare import charts, environments, report
from loadtests.compare.agreement import logits_agree, tokens_agree
from loadtests.compare.comparison import Result, Side, compare_all, verified
from loadtests.compare.connection import Worker, WorkerError
from loadtests.compare.environments import Environment, NotAvailable, Own
from loadtests.compare.models import BERT, Reference, reference_path
from loadtests.compare.panel import PANELS, Choice, compare_models, fill
from loadtests.compare.peers import Program
from loadtests.compare.traffic import CLASSIFY, GENERATE, real_rows
from loadtests.compare.worker import Answer, Setup, Work, padded
from loadtests.load.lengths import mixed_sizes
from loadtests.load.turns import Spread, take_turns, times_faster
from tests.fakes.serving import eventually

ROOT = Path(__file__).parents[2]
REFERENCE = Reference(
    rows=[[5, 6], [9, 1, 1]],
    logits=[[5.0, -5.0], [9.0, -9.0]],
    prompts=[[4, 4], [7]],
    tokens=[[4, 4, 4], [7, 7, 7]],
)
WORK = Work([[5, 6], [9, 1, 1]], 2)


def fake(**options: object) -> Program:
    task = GENERATE if options.pop("generates", False) else CLASSIFY
    precision = str(options.pop("precision", "float32"))
    return Program("fake", Own("own"), "fake", task, precision, "bert", options)


@pytest.fixture
def fake_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`loadtests.compare.fake` is where declarations look: lead it to the fake worker."""
    import loadtests.compare.comparison as comparison

    def worker(name: str, command: list[str], log: Path, environ: dict[str, str]) -> Worker:
        assert command[-1] == "loadtests.compare.fake"
        log = tmp_path / "log"
        return Worker(name, [*command[:-1], "tests.fakes.peer"], log, environ)

    monkeypatch.setattr(comparison, "Worker", worker)
    monkeypatch.setattr(comparison, "BUILD", tmp_path)


def compared(peer: Program, work: Work = WORK) -> Result:
    result = Result("kind", "what", peer.task, peer.name, peer.precision)
    ours = Side("ours", lambda _: Answer(1.0, []))
    with ExitStack() as stack:
        sides, faults = verified(stack, [peer], REFERENCE, 1)
        result.fault = faults.get(peer.name, "")
        if sides:
            compare_all([ours, *sides], {peer.name: result}, work, 3)
    return result


@pytest.mark.usefixtures("fake_module")
def test_a_peer_that_agrees_takes_turns_and_its_ratio_is_over_each_round() -> None:
    result = compared(fake())
    assert not result.fault
    assert result.theirs_s == [2.0] * 3
    assert report.ratios(result) == {"ours": Spread(2.0, 2.0, 2.0)}


@pytest.mark.usefixtures("fake_module")
@pytest.mark.parametrize(
    ("peer", "why"),
    [
        (fake(wrong=1), "float32 may differ by"),
        (fake(wrong=-20, precision="int8"), "at least 0.9 is expected"),
        (fake(wrong=1, generates=True), "float32 must give all"),
        (fake(wrong=1, generates=True, precision="int8"), "0% of first tokens"),
        (fake(fails=True), "no such model"),
        (fake(ends=True), "ended, or took longer"),
    ],
)
def test_a_peer_that_disagrees_or_fails_is_refused_with_its_reason(peer: Program, why: str) -> None:
    result = compared(peer)
    assert why in result.fault
    assert not result.theirs_s
    assert not report.ratios(result)


def test_a_worker_that_prints_to_stdout_does_not_break_the_protocol(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fakes.peer"]
    with Worker("fake", command, tmp_path / "log", {}) as worker:
        worker.open(Setup("", 1, sys.executable, "", {}))
        answer = worker.run(Work([[3], [4]], 2, [2, 1]))
    assert answer.outputs == [[3, 3], [4]]
    assert "a library prints" in (tmp_path / "log").read_text()


def test_a_worker_is_told_of_by_name_when_it_cannot_start(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with (
        Worker("absent", command, tmp_path / "log", {}) as worker,
        pytest.raises(WorkerError, match="absent ended"),
    ):
        worker.open(Setup("", 1, "", "", {}))


def test_the_workers_half_needs_the_standard_library_alone() -> None:
    """It runs in every peer's environment, where neither rich nor numpy need be."""
    code = (
        "import sys; from loadtests.compare import worker; "
        "print([n for n in ('numpy', 'rich', 'typer', 'service') if n in sys.modules])"
    )
    found = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert found.stdout.strip() == "[]"


def test_turns_are_taken_in_order_and_the_first_round_does_not_count() -> None:
    """The order is reversed every other round."""
    asked: list[str] = []

    def run(name: str) -> int:
        asked.append(name)
        return len(asked)

    places = take_turns({name: partial(run, name) for name in "abc"}, 2)
    assert asked == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
    assert places == {"a": [6, 7], "b": [5, 8], "c": [4, 9]}


def test_a_ratio_is_of_one_round_so_a_machine_that_changes_speed_changes_both_sides() -> None:
    assert times_faster([1.0, 2.0, 4.0], [2.0, 4.0, 12.0]) == Spread(2.0, 2.0, 3.0)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_rounding_is_forgiven_to_rounded_precisions_only(precision: str) -> None:
    rounded = [[value + 0.2 for value in row] for row in REFERENCE.logits]
    assert bool(logits_agree(REFERENCE.logits, rounded, precision).fault) == (
        precision == "float32"
    )
    late = [[4, 4, 5], [7, 7, 7]]
    assert bool(tokens_agree(REFERENCE.tokens, late, precision).fault) == (precision == "float32")


@pytest.mark.parametrize(
    "found", [[[5.0, -5.0]], [[float("nan"), 0.0], [9.0, -9.0]], [[5.0], [9.0]]]
)
def test_logits_of_another_shape_or_not_finite_are_a_fault(found: list[list[float]]) -> None:
    assert logits_agree(REFERENCE.logits, found, "int8").fault


def test_too_few_tokens_are_a_fault_however_they_are_rounded() -> None:
    assert "tokens per row" in tokens_agree(REFERENCE.tokens, [[4, 4], [7, 7, 7]], "int8").fault


@pytest.mark.parametrize("name", PANELS)
def test_declarations_are_unique_and_their_workers_are_files(name: str) -> None:
    panel = PANELS[name]
    for model in panel.titles:
        peers = [*panel.ours(model, (), {}), *panel.peers(model)]
        assert len({peer.name for peer in peers}) == len(peers)
        tasks = {kind.task for kind in panel.traffic[model]}
        for peer in peers:
            module = ROOT / "loadtests" / "compare" / f"{peer.worker.replace('.', '/')}.py"
            assert module.exists(), peer.name
            assert {peer.task} == tasks


@pytest.mark.parametrize("name", PANELS)
@pytest.mark.parametrize("is_quick", [True, False])
def test_every_kind_of_traffic_can_be_made_and_fits_the_models(name: str, is_quick: bool) -> None:
    panel = PANELS[name]
    for model in panel.titles:
        chosen = panel.work(model, Choice(is_quick=is_quick))
        assert chosen
        for kind, work in chosen:
            assert work.amount > 0
            assert max(map(len, work.rows), default=0) <= 512
            assert len(work.num_tokens) == (len(work.rows) if kind.task == GENERATE else 0)


def named(*names: str) -> list[Program]:
    return [replace(fake(), name=name) for name in names]


def test_peers_are_chosen_by_the_beginning_of_their_names() -> None:
    panel = replace(PANELS["engines"], peers=lambda _: named("OpenVINO a", "openvino b", "other"))
    chosen = panel.selected(BERT, Choice(peers=["openvino"]))
    assert [peer.name for peer in chosen] == ["OpenVINO a", "openvino b"]
    assert panel.selected(BERT, Choice(is_quick=True)) == []


@pytest.mark.parametrize(
    ("models", "choice", "why"),
    [
        ([], Choice(peers=["absent"]), "no peer is called 'absent'; there are: vllm a"),
        (["absent"], Choice(), "model 'absent' is none of"),
        ([], Choice(kinds=["absent"]), "traffic 'absent' is none of"),
    ],
)
def test_what_is_chosen_and_not_there_is_refused_before_anything_is_installed(
    models: list[str], choice: Choice, why: str, tmp_path: Path
) -> None:
    panel = replace(PANELS["engines"], peers=lambda _: named("vllm a"))
    with pytest.raises(typer.BadParameter, match=why):
        compare_models(panel, models, choice, {}, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["servers", "--texts", "lines.txt"], "--texts is an option of engines"),
        (["engines", "--setting", "spin_us=1", "--setting", "spin_us=2"], "spin_us is given twice"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(arguments: list[str], why: str) -> None:
    outcome = CliRunner(env={"COLUMNS": "200"}).invoke(compare.app, arguments)
    assert outcome.exit_code == 2
    assert why in outcome.output


def test_where_a_worker_fails_in_its_turn_the_others_begin_again_without_it() -> None:
    """The one that failed says why; the others have figures of whole rounds."""
    asked: list[str] = []

    def side(name: str, fails_at: int = 0) -> Side:
        def run(_: Work) -> Answer:
            asked.append(name)
            if asked.count(name) == fails_at:
                raise WorkerError(name, f"{name} ended")
            return Answer(1.0, [])

        return Side(name, run)

    results = {name: Result("kind", "what", CLASSIFY, name, "int8") for name in "ab"}
    work = Work([], 1, texts=["t"])
    fill([side("ours")], [side("a"), side("b", fails_at=2)], results, work, rounds=2)
    assert results["b"].fault == "b ended"
    assert not results["b"].theirs_s
    assert (results["a"].theirs_s, results["a"].fault) == ([1.0, 1.0], "")
    assert asked[-4:] == ["ours", "a", "a", "ours"]


def test_where_ours_fails_all_say_so() -> None:
    def run(_: Work) -> Answer:
        raise WorkerError("ours", "ours ended")

    results = {"a": Result("kind", "what", CLASSIFY, "a", "int8")}
    fill([Side("ours", run)], [Side("a", run)], results, Work([], 1, texts=["t"]), rounds=1)
    assert results["a"].fault == "ours ended"


async def test_programs_are_stopped_while_others_have_their_turn(tmp_path: Path) -> None:
    """What polls for requests takes no processor from others; what ended is no error."""
    command = [sys.executable, "-m", "tests.fakes.peer"]

    def state(process_id: int) -> str:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]

    with Worker("fake", command, tmp_path / "log", {}) as worker:
        worker.open(Setup("", 1, sys.executable, "", {}))
        for _ in range(2):
            await eventually(lambda: state(worker.process_id) == "T")
            assert worker.run(Work([[3]], 1, [1])).outputs == [[3]]


def test_real_lengths_are_sorted_within_a_window_only() -> None:
    sizes = mixed_sizes(64)
    rows = real_rows(sizes).rows
    for window in (slice(0, 32), slice(32, 64)):
        assert [len(row) for row in rows[window]] == sorted(sizes[window])
    assert min(sizes) >= 3
    assert max(sizes) > 100


def test_padding_is_on_the_right_and_masked() -> None:
    assert padded([[1, 2, 3], [4]]) == ([[1, 2, 3], [4, 0, 0]], [[1, 1, 1], [1, 0, 0]])


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment whose installation fails."""
    monkeypatch.setattr(environments, "BUILD", tmp_path)
    return Environment("broken", script="echo an error: no compiler; false", shown=("pip",))


def test_what_does_not_install_says_why(broken: Environment) -> None:
    with pytest.raises(NotAvailable, match="no compiler"):
        broken.install()
    assert not broken.is_installed


def test_what_cannot_even_be_made_says_why(broken: Environment, tmp_path: Path) -> None:
    """As on a full disk: no environment, and a reason instead of a traceback."""
    (tmp_path / "venv").write_text("in the way")
    with pytest.raises(NotAvailable, match=r"(?i)error.*venv"):
        broken.install()


def test_what_a_script_builds_has_the_version_that_pip_downloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "BUILD", tmp_path)
    built = Environment(
        "built", ("download engine==0.3.36 --dest sdist",), shown=("numpy", "engine")
    )
    (tmp_path / "venv" / "built").mkdir(parents=True)
    (tmp_path / "venv" / "built" / "versions.json").write_text('{"numpy": "2.4.1"}')
    assert built.versions() == {"numpy": "2.4.1", "engine": "0.3.36"}


def test_a_peer_that_does_not_install_has_its_row_in_the_table_and_ends_no_run(
    broken: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel_module, "MODELS", tmp_path)
    reference_path(tmp_path, BERT).touch()
    peers = [replace(fake(), environment=broken)]
    panel = replace(PANELS["engines"], peers=lambda _: peers, ours=lambda *_: [])
    compare_models(panel, [BERT], Choice(kinds=["fixed"]), {}, tmp_path / "results")
    (result,) = report.kept(tmp_path / "results")
    assert (result.traffic, result.peer) == ("fixed", "fake")
    assert "no compiler" in result.fault
    assert not result.versions


def test_results_are_kept_and_shown_again_with_those_that_lost_and_those_refused(
    tmp_path: Path,
) -> None:
    lost = Result("fixed", "what", CLASSIFY, "fast peer", "bf16", {"fast": "1.0"}, amount=10)
    lost.theirs_s, lost.ours_s = [1.0, 1.0], {"attendant fp32": [2.0, 4.0]}
    refused = Result("fixed", "what", CLASSIFY, "other peer", "float32", fault="disagrees")
    for result in (lost, refused):
        report.keep(result, tmp_path)
    results = report.kept(tmp_path)
    assert [result.peer for result in results] == ["fast peer", "other peer"]
    console = Console(record=True, width=160)
    report.show(results, console)
    text = console.export_text()
    assert "0.38 (0.25 to 0.50)" in text
    assert "disagrees" in text
    (file,) = report.published(results)
    assert (file.name, file.page) == ("compare-engines", "Encoders beside other engines")
    over = [each for each in file.figures if each.column == "attendant fp32 over it"]
    assert [(each.row, each.median) for each in over] == [("fast peer", 0.38)]
    assert list(file.rounds) == ["fixed: attendant fp32", "fixed: fast peer"]


def test_overview_is_drawn_from_figures_kept_with_the_project(tmp_path: Path) -> None:
    compare.overview(tmp_path / "overview.png")
    assert (tmp_path / "overview.png").stat().st_size > 10_000
    assert (ROOT / charts.OVERVIEW).exists()
