"""Section 6 with tiny models on the CPU: figures, goals and tables; none is a benchmark."""

import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtests.gpu import speed
from loadtests.gpu.builds import Builds
from loadtests.gpu.context import Context, Findings, Run
from loadtests.gpu.counts import Sizes, encoder_flops, step_bytes
from loadtests.gpu.engines import full_steps, host_share, step_intervals_s
from loadtests.gpu.limits import Limits
from loadtests.gpu.shapes import MISSING, TINY_DECODERS, TINY_ENCODERS
from loadtests.gpu.speed_decoders import SLOTS, Sizing, engine_settings
from loadtests.gpu.speed_encoders import COMPILED, EAGER, batches_of, even_load, loads, real_load
from loadtests.gpu.transformers_peer import STATIC_EAGER
from models.networks.gpt import GPTConfig
from service.records import RanStep

LIMIT_S = 110.0  # on a busy machine; rounds are few, so that it takes 15 s on a quiet one

OURS = ("ours, fp32, packed", "ours, fp32, padded")


@pytest.fixture(scope="module")
def findings(tiny_run: Run) -> Findings:
    return speed.run(Context(tiny_run, "6 speed", time.monotonic() + LIMIT_S))


def test_findings_are_plain_json(findings: Findings) -> None:
    assert json.loads(json.dumps(findings, allow_nan=False)) == findings


def test_every_load_has_each_way(findings: Findings) -> None:
    by_load: dict[str, list[str]] = {}
    for row in findings["encoders"]:
        by_load.setdefault(row["load"], []).append(row["way"])
    assert set(by_load) == {load.name for load in loads(is_tiny=True)}
    for ways in by_load.values():
        assert set(ways) == {EAGER, COMPILED, *OURS}


def test_rates_and_shares_are_those_of_the_times(findings: Findings) -> None:
    limits, config = findings["limits"], TINY_ENCODERS["tiny-encoder"]
    by_name = {load.name: load for load in loads(is_tiny=True)}
    for row in findings["encoders"]:
        load, median_s = by_name[row["load"]], row["seconds"]["median"]
        assert row["flops"] == encoder_flops(Sizes.of(config), load.lengths)
        assert row["rows_per_s"]["median"] == pytest.approx(len(load.lengths) / median_s)
        precision = "fp32" if row["way"].startswith("ours") else "bf16"
        rate = limits["flops_per_s"][precision]
        assert row["share_of_matrix_rate"] == pytest.approx(row["flops"] / median_s / rate)


def test_ratios_lie_within_those_of_the_slowest_and_fastest_rounds(findings: Findings) -> None:
    for rows, key in ((findings["encoders"], "load"), (findings["decoders"], "in_flight")):
        for row in rows:
            for peer, over in row["speed_over"].items():
                (other,) = (
                    each["seconds"]
                    for each in rows
                    if (each["shape"], each[key], each["way"]) == (row["shape"], row[key], peer)
                )
                assert over["count"] == other["count"] == row["seconds"]["count"]
                assert over["low"] <= over["median"] <= over["high"]


def test_decoders_are_beside_transformers_with_every_number_of_rows(findings: Findings) -> None:
    ways = {(row["shape"], row["in_flight"], row["way"]) for row in findings["decoders"]}
    num_rows = Sizing.of(is_tiny=True).num_rows
    assert ways == set(product(TINY_DECODERS, num_rows, (SLOTS, STATIC_EAGER)))


def test_a_step_has_its_share_of_the_bandwidth(findings: Findings) -> None:
    sizing = Sizing.of(is_tiny=True)
    ours = [row for row in findings["decoders"] if row["way"] == SLOTS]
    past = sizing.prompt_tokens + sizing.output_tokens // 2
    for row in ours:
        sizes = Sizes.of(TINY_DECODERS[row["shape"]])
        num_bytes = step_bytes(sizes, row["in_flight"], past, value_bytes=4)
        rate = findings["limits"]["copy_bytes_per_s"]
        assert row["step_bytes"] == num_bytes
        share = num_bytes / row["step_s"]["median"] / rate
        assert row["share_of_bandwidth"] == pytest.approx(share)
        assert 0 < row["host_share"] < 1
        tokens = row["in_flight"] * sizing.output_tokens
        assert row["tokens_per_s"]["median"] == pytest.approx(tokens / row["seconds"]["median"])


def test_the_first_token_comes_before_the_last(findings: Findings) -> None:
    assert {row["way"] for row in findings["first_token"]} == {SLOTS, STATIC_EAGER}
    assert all(row["seconds"]["median"] > 0 for row in findings["first_token"])


def test_every_goal_has_its_figure(findings: Findings) -> None:
    goals = [claim["claim"] for claim in findings["claims"] if claim["kind"] == "goal"]
    over_compiled = [goal for goal in goals if "over torch.compile" in goal]
    assert len(over_compiled) == len(loads(is_tiny=True))
    assert sum("matrix rate" in goal for goal in goals) == 1
    for part in ("memory bandwidth", "outside of the decoder's run", "over transf"):
        assert sum(part in goal for goal in goals) == len(TINY_DECODERS), part


def test_what_is_timed_gives_pytorchs_logits(findings: Findings) -> None:
    checks = [claim for claim in findings["claims"] if claim["kind"] == "check"]
    assert len(checks) == len(OURS) * len(loads(is_tiny=True))
    assert all(claim["holds"] for claim in checks)


def test_a_graph_that_computes_something_else_fails_its_check(findings: Findings) -> None:
    wrong = findings | {"errors": {"tiny-encoder": {"2 x 32, ours, fp32, packed": 0.4}}}
    (check, *_) = speed.claims_of(wrong, is_tiny=True)
    assert (check["kind"], check["holds"]) == ("check", False)


def test_what_cannot_be_measured_yet_is_named(findings: Findings) -> None:
    for shape in MISSING:
        assert any(sentence.startswith(shape) for sentence in findings["left_out"])


def test_a_shape_that_fails_is_a_failed_check_and_keeps_what_others_gave(
    findings: Findings, tmp_path: Path
) -> None:
    run = Run(tmp_path, "cpu", is_tiny=True)
    context = Context(run, "6 speed", time.monotonic() + LIMIT_S)
    limits = Limits(**findings["limits"])
    kept = findings | {"failures": []}
    prepared = speed.Prepared(Builds(tmp_path, "cpu"), limits)
    speed._measure(kept, context, "tiny-encoder", prepared)
    (failure,) = kept["failures"]
    assert (failure["kind"], failure["holds"]) == ("check", False)
    assert failure["claim"] == "A tiny encoder was timed"
    assert failure["found"].startswith("FileNotFoundError")
    assert speed.claims_of(kept, is_tiny=True)[0] == failure
    assert kept["encoders"] == findings["encoders"]


def test_rows_of_real_lengths_are_sorted_and_none_is_lost() -> None:
    load = real_load(128, 32, 512)
    assert [len(batch) for batch in load.batches] == [32] * 4
    assert load.lengths == sorted(load.lengths)
    assert not load.is_even
    assert even_load(8, 128).is_even


def test_batches_are_padded_on_the_right() -> None:
    (first, *_) = batches_of(real_load(8, 4, 64), 512)
    lengths = first["attention_mask"].sum(axis=1)
    assert lengths.tolist() == list(real_load(8, 4, 64).batches[0])
    assert np.array_equal(first["attention_mask"], first["input_ids"] > 0)


def _step(num_rows: int, run_s: float, interval_s: float, phase: str = "decode") -> RanStep:
    return RanStep(phase, num_rows, num_rows, run_s, 0.0, 0, 0, 0, (), (), (interval_s,) * num_rows)


def test_the_hosts_share_is_what_a_step_takes_beside_its_run() -> None:
    """Runs of 9 ms every 10 ms: a tenth. A prompt, fewer rows and the first step do not count."""
    steps = [
        _step(4, 0.001, 1.0, "prefill"),
        _step(4, 0.009, 0.5),
        *[_step(4, 0.009, 0.01)] * 3,
        _step(2, 0.001, 0.01),
    ]
    full = full_steps(steps, 4)
    assert len(full) == 3
    assert host_share(full) == pytest.approx(0.1)
    assert step_intervals_s(full) == [0.01] * 3


def test_a_cache_has_room_for_all_rows() -> None:
    sizing = Sizing.of(is_tiny=False)
    settings: dict[str, Any] = engine_settings(GPTConfig.xl(), sizing, "cuda")
    per_token = 2 * 48 * 25 * 64 * 2
    assert settings["kv_cache_bytes"] == 128 * 520 * per_token
    assert settings["max_running_sequences"] == 128
