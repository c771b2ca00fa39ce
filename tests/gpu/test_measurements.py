"""Speed, the server's cost and layouts with tiny models on the CPU; none is a benchmark."""

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtests.compare.devices import decoders, encoders, layouts
from loadtests.compare.devices.__main__ import app
from loadtests.compare.devices.goals import CHECKED, way_of
from loadtests.compare.devices.layouts import shared_prompts
from loadtests.compare.worker import Answer, Work
from loadtests.gpu import speed
from loadtests.gpu.context import Context, Findings, Run
from loadtests.gpu.models import Model, export, models_of
from loadtests.gpu.sections import TINY_SHAPES
from loadtests.measure.results import read_all

pytestmark = pytest.mark.timeout(300)
SHAPES = TINY_SHAPES[:2]
OURS = ("ours, fp32, packed", "ours, fp32, padded")


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """A section in which both shapes are there."""
    run = Run(tmp_path_factory.mktemp("speed"), "cpu", True, SHAPES, "compiled")
    wanted = models_of(run, *[(shape, "") for shape in SHAPES])
    for model in wanted:
        model.repository.mkdir(parents=True, exist_ok=True)
        export(model, run)
    return Context(run, "6 speed", time.monotonic() + 150)


@pytest.fixture(scope="module")
def findings(context: Context) -> Findings:
    speed.run(context)
    return context.findings


def test_every_case_has_each_way(findings: Findings) -> None:
    for passed, peers in (
        ("eager", (encoders.EAGER, decoders.STATIC)),
        ("compiled", (encoders.COMPILED, decoders.COMPILED)),
    ):
        rows = findings["tables"][f"encoders tiny-encoder {passed}"]
        ways = {f"{load}: {way}" for load in encoders.loads(is_tiny=True) for way in OURS}
        ways |= {f"{load}: {peers[0]}" for load in encoders.loads(is_tiny=True)}
        assert {row["way"] for row in rows} == ways
        rows = findings["tables"][f"decoders tiny-decoder {passed}"]
        expected = {"ours, slots", peers[1]}
        assert {row["way"] for row in rows} == {
            f"{case}: {way}" for case in ("1 row", "4 rows") for way in expected
        }


def test_every_goal_has_its_figure(findings: Findings) -> None:
    goals = [claim["claim"] for claim in findings["claims"] if claim["kind"] == "goal"]
    parts = (
        *("matrix rate", f"over {encoders.COMPILED}", "memory bandwidth", "outside of"),
        f"over {decoders.COMPILED}",
    )
    for part in parts:
        assert any(part in goal for goal in goals), part


def test_what_is_timed_gives_the_logits_of_the_network(findings: Findings) -> None:
    checks = [claim for claim in findings["claims"] if claim["kind"] == "check"]
    assert len(checks) == 2 * len(OURS) * len(encoders.loads(is_tiny=True))
    assert all(CHECKED in claim["claim"] and claim["holds"] for claim in checks)


def test_ratios_are_over_the_peer_of_the_same_case(findings: Findings) -> None:
    for passed, peer in (("eager", encoders.EAGER), ("compiled", encoders.COMPILED)):
        for row in findings["tables"][f"encoders tiny-encoder {passed}"]:
            assert way_of(row["way"]).startswith("ours") == bool(row.get(f"over {peer}"))


def test_figures_are_kept_as_those_of_every_measure(context: Context, findings: Findings) -> None:
    """With the turns of every way, and the numbers that they are made of."""
    results = read_all(context.run.out / "results")
    result = results["decoders tiny-decoder eager"]
    assert result.page == decoders.DECODERS.page
    turns = result.rounds["4 rows: ours, slots"]
    assert len(turns) == speed.TINY_ROUNDS
    assert {"seconds", "tokens", "rows_a_step"} <= turns[0].keys()
    assert "encoders tiny-encoder compiled" in results
    assert findings["tables"].keys() - {"The machine's limits"} <= results.keys()


def test_a_shape_that_fails_is_a_failed_check(context: Context, tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # a repository that cannot be written
    model = Model("tiny-llama", "", tmp_path / "file")
    other = Context(context.run, "6 speed", time.monotonic() + 60)
    speed.measure(other, model, 5.0, "none")
    claims = other.findings["claims"]
    assert {claim["claim"] for claim in claims} == {"decoders tiny-llama is timed"}
    assert not any(claim["holds"] for claim in claims)


def test_a_case_without_time_is_left_out(context: Context) -> None:
    (model,) = models_of(context.run, ("tiny-decoder", ""))
    other = Context(context.run, "6 speed", time.monotonic() + 60)
    speed.measure(other, model, 0.0, "none")
    assert not other.findings["claims"]
    assert [said.partition(": ")[2] for said in other.findings["left_out"]] == [
        "no time was left"
    ] * 2


def test_the_server_stands_beside_its_session(context: Context) -> None:
    speed.server_cost(context)
    rows = context.findings["tables"]["server"]
    assert len(rows) == 2 * len(speed.TINY_LOADS)
    assert {row["way"].rpartition(": ")[2] for row in rows} == {"bare", "server"}
    assert all(row["mean latency, ms"] for row in rows if row["way"].endswith("server"))


def test_slots_are_measured_under_all_loads(context: Context) -> None:
    """Memory for one slot lets one sequence run at a time."""
    speed.layouts(context)
    rows = context.findings["tables"]["layouts tiny-decoder"]
    *several, alone = [int(row["most"].partition(" ")[0]) for row in rows]
    assert min(several) > 1  # up to 4, as the machine lets them come together
    assert alone == 1
    assert rows[1]["reused, %"] != "0"


def test_prompts_of_a_round_share_beginnings_with_those_of_others() -> None:
    rounds = [shared_prompts(4, 16, number) for number in range(2)]
    begins = [{tuple(row[:16]) for row in work.rows} for work in rounds]
    assert len(begins[0] | begins[1]) <= layouts.NUM_GROUPS
    assert rounds[0] != rounds[1]


def test_texts_that_differ_from_those_over_slots_are_counted() -> None:
    """Of two texts of each of two rounds one differs: the round that both have done counts."""
    outputs = {layouts.SLOTS: [[1], [2]], layouts.PAGED: [[1], [3]]}
    texts: dict[str, list[list[object]]] = {layouts.SLOTS: [], layouts.PAGED: []}

    def turn(layout: str) -> float:
        answer = Answer(1.0, outputs[layout], first_s=[0.1])
        works = lambda _: Work([[1], [1]], 2, [1, 1])  # noqa: E731
        return layouts._turn(lambda _: answer, works, layout, texts).get("same", -1.0)

    assert [turn(layout) for layout in (layouts.PAGED, layouts.SLOTS)] == [1.0, -1.0]
    assert turn(layouts.PAGED) == 0.5


def test_rows_of_real_lengths_are_sorted_and_none_is_lost() -> None:
    lengths, batch_rows = encoders.loads(is_tiny=False)["real lengths"]
    assert (len(lengths), batch_rows) == (128, 32)
    assert lengths == sorted(lengths)


def test_a_network_is_measured_alone_by_its_own_command(context: Context, tmp_path: Path) -> None:
    """As in `loadtests.compare.devices`, with graphs that are there or are written."""
    (model,) = models_of(context.run, ("tiny-decoder", ""))
    flags = "--repository", str(model.repository), "--output", str(tmp_path), "--rounds", "3"
    done = CliRunner().invoke(app, ["layouts", "--shape", "tiny-decoder", *flags])
    assert done.exit_code == 0, done.output
    (result,) = read_all(tmp_path).values()
    assert {figure.column for figure in result.figures} >= {"tokens/s", "running at once"}
    refused = CliRunner().invoke(app, ["encoders", "--shape", "gpt2"], env={"COLUMNS": "200"})
    assert refused.exit_code == 2
    assert "--shape is 'gpt2', expected one of ['bert-base'" in refused.output
