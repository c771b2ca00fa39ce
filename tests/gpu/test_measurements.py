"""Speed, the server's cost and layouts with tiny models on the CPU; none is a benchmark."""

import time
from collections import Counter

import numpy as np
import pytest

from loadtests.gpu import encoders, layouts, server_cost, speed
from loadtests.gpu.context import Context, Findings, Run
from loadtests.gpu.decoders import COMPILED, STATIC
from loadtests.gpu.layouts import shared_prompts
from loadtests.gpu.models import export, models_of
from loadtests.gpu.sections import TINY_SHAPES
from loadtests.gpu.timing import MachineLimits

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


def test_every_load_has_each_way(findings: Findings) -> None:
    by_load: dict[str, set[str]] = {}
    for row in findings["tables"]["Encoders"]:
        by_load.setdefault(row["load"], set()).add(row["way"])
    assert set(by_load) == set(encoders.loads(is_tiny=True))
    for ways in by_load.values():
        assert ways == {encoders.EAGER, encoders.COMPILED, *OURS}
    counts = Counter(row["way"] for row in findings["tables"]["Decoders, prompts included"])
    assert counts == {"ours, slots": 4, STATIC: 2, COMPILED: 2}


def test_every_goal_has_its_figure(findings: Findings) -> None:
    goals = [claim["claim"] for claim in findings["claims"] if claim["kind"] == "goal"]
    parts = ("matrix rate", f"over {encoders.COMPILED}", "memory bandwidth", "outside of", COMPILED)
    for part in parts:
        assert any(part in goal for goal in goals), part


def test_what_is_timed_gives_pytorchs_logits(findings: Findings) -> None:
    checks = [claim for claim in findings["claims"] if claim["kind"] == "check"]
    assert len(checks) == 2 * len(OURS) * len(encoders.loads(is_tiny=True))
    assert all(claim["holds"] for claim in checks)


def test_ratios_are_of_our_fastest_way(findings: Findings) -> None:
    for table in ("Encoders", "Decoders, prompts included"):
        for row in findings["tables"][table]:
            assert row["way"].startswith("ours") != ("ours over it" in row)


def test_a_shape_that_fails_is_a_failed_check(context: Context) -> None:
    (model,) = models_of(context.run, ("tiny-llama", ""))
    other = Context(context.run, "6 speed", time.monotonic() + 60)
    limits = MachineLimits(1.0, {"fp32": 1.0, "bf16": 1.0}, 1.0)
    speed.measure(other, model, limits, 5.0, is_compiled=False)
    (claim,) = other.findings["claims"]
    assert claim["claim"] == "tiny-llama is timed"
    assert not claim["holds"]


def test_the_server_stands_beside_its_session(context: Context) -> None:
    server_cost.run(context)
    rows = context.findings["tables"]["The server"]
    assert len(rows) == 2 * len(server_cost.TINY_LOADS)
    assert {row["way"] for row in rows} == {"bare", "ours, served"}
    assert all(row["mean latency, ms"] > 0 for row in rows)


def test_slots_are_measured_under_all_loads(context: Context) -> None:
    """Memory for one slot lets one sequence run at a time."""
    layouts.run(context)
    rows = context.findings["tables"]["Layouts of the cache"]
    assert [row["most"] for row in rows] == [4, 4, 1]
    assert rows[1]["reused"] != "0%"


def test_prompts_of_a_round_share_beginnings_with_those_of_others() -> None:
    rounds = [shared_prompts(4, 16, number) for number in range(2)]
    begins = [{tuple(prompt.ids[:16]) for prompt in prompts} for prompts in rounds]
    assert len(begins[0] | begins[1]) <= layouts.NUM_GROUPS
    assert rounds[0] != rounds[1]


def test_rows_of_real_lengths_are_sorted_and_none_is_lost() -> None:
    load = encoders.loads(is_tiny=False)["real lengths"]
    lengths = [length for batch in load for length in batch]
    assert [len(batch) for batch in load] == [32] * 4
    assert lengths == sorted(lengths)


def test_ids_are_padded_with_zeros() -> None:
    (batch,) = encoders.batches_of([(3, 5)], 512)
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert not np.any(batch["input_ids"] * (1 - batch["attention_mask"]))
