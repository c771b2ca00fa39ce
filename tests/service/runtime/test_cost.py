"""Prices are found again in times that were made from them; what fits no curve gives none."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from service.contract.files import ModelSource
from service.errors import ModelFailed
from service.repository.loading import Openers, load_model
from service.repository.measuring import BATCHES, MAX_ROUNDS, measure_cost
from service.runtime.cost import MAX_OVERHEAD, CostCurve, fit
from service.runtime.session import RunStop
from service.settings import Settings
from tests.fakes.sessions import (
    PATIENCE_S,
    FakeDecoders,
    FakeSession,
    FakeSessions,
    classifier_manifest,
    text_session,
    write_model,
)

TOKEN_S = 1e-4
CURVES = {
    "padding costs like text": CostCurve(30.0, 1.0, 0.001, TOKEN_S),
    "packed": CostCurve(30.0, 0.0, 0.001, TOKEN_S),
    "linear": CostCurve(5.0, 1.0, 0.0, TOKEN_S),
    "no overhead": CostCurve(0.0, 1.0, 0.002, TOKEN_S),
}
by_name = pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)


def seconds(curve: CostCurve, lengths: tuple[int, ...]) -> float:
    work = curve.work(len(lengths), max(lengths), sum(lengths))
    return curve.token_s * (curve.overhead + work)


def test_the_price_of_rows_is_that_of_their_text_their_padding_and_their_attention() -> None:
    """Rows of 4 and 10: 14 tokens, 6 of padding at a half, 2 * 10^2 pairs at a hundredth."""
    assert CostCurve(16.0, 0.5, 0.01).work(2, 10, 14) == 14 + 3 + 2


def test_a_measured_curve_is_named_by_its_times() -> None:
    """23 tokens of 45.8 us are the price of a run."""
    curve = CostCurve(23.0, 0.37, 0.003823, 45.8e-6)
    assert str(curve) == "measured: 45.8 us per token, 1.1 ms per run"


def test_many_batches_are_priced_at_once() -> None:
    curve, sizes = CostCurve(16.0, 0.5, 0.01), np.array([[2, 10, 14], [1, 7, 7]])
    rows, longest, tokens = sizes.T
    assert curve.work(rows, longest, tokens).tolist() == [
        curve.work(*size) for size in sizes.tolist()
    ]


@by_name
def test_prices_are_found_again_in_exact_times(curve: CostCurve) -> None:
    found = fit([(batch, seconds(curve, batch)) for batch in BATCHES])
    assert found is not None
    for name in ("overhead", "padding", "square", "token_s"):
        assert getattr(found, name) == pytest.approx(getattr(curve, name), rel=1e-6, abs=1e-9)


@by_name
def test_times_that_are_off_by_a_twentieth_change_no_predicted_cost_by_more_than_a_quarter(
    curve: CostCurve,
) -> None:
    """100 draws of noise, on batches that were not measured."""
    random = np.random.default_rng(0)
    others = [(16,) * 4, (64,) * 8, (128, 128), (20, 25, 30, 40), (12,)]
    others += [(256, 8, 8, 8), (160, 20, 20, 20, 20)]
    for _ in range(100):
        noise = random.uniform(0.95, 1.05, len(BATCHES))
        times = [seconds(curve, batch) * by for batch, by in zip(BATCHES, noise, strict=True)]
        found = fit(list(zip(BATCHES, times, strict=True)))
        assert found is not None
        for batch in others:
            assert seconds(found, batch) == pytest.approx(seconds(curve, batch), rel=0.25)


def test_no_price_is_below_zero_and_no_overhead_beyond_its_bound() -> None:
    """Runs that become cheaper per token than any curve allows; a run that nearly only costs."""
    cheaper = [(batch, 1.0 + 0.01 * sum(batch) ** 0.8) for batch in BATCHES]
    found = fit(cheaper)
    assert found is not None
    assert min(found.overhead, found.padding, found.square) >= 0
    assert found.overhead <= MAX_OVERHEAD


def test_times_that_no_curve_fits_give_none() -> None:
    """The shortest batch took twenty times the expected time: another program ran."""
    curve = CURVES["packed"]
    times = [(batch, seconds(curve, batch)) for batch in BATCHES]
    lengths, seconds_of_it = times[1]
    times[1] = (lengths, 20 * seconds_of_it)
    assert fit(times) is None


class Machine:
    """Runs that take what a curve says, on a clock of their own; some take longer."""

    def __init__(self, curve: CostCurve, slow_runs: frozenset[int] = frozenset()) -> None:
        self.curve, self.slow_runs = curve, slow_runs
        self.now_s = 0.0
        self.batches: list[tuple[int, ...]] = []

    def run(self, lengths: Sequence[int], stopping: RunStop) -> None:
        assert not stopping.is_stopped
        is_slow = len(self.batches) in self.slow_runs
        self.batches.append(tuple(lengths))
        self.now_s += seconds(self.curve, tuple(lengths)) * (50 if is_slow else 1)

    def clock(self) -> float:
        return self.now_s


def test_a_model_is_measured_by_medians() -> None:
    """The first round is slow, as a graph's first runs are, and one run each of two later ones."""
    curve = CURVES["packed"]
    machine = Machine(curve, frozenset([*range(len(BATCHES)), 7, 18]))
    found = measure_cost(machine.run, 512, 60.0, machine.clock)
    assert found is not None
    assert found.overhead == pytest.approx(30.0, rel=1e-6)
    assert found.padding == pytest.approx(0.0, abs=1e-6)
    assert machine.batches == list(BATCHES) * (MAX_ROUNDS + 1)


def test_no_row_is_longer_than_the_model_takes() -> None:
    machine = Machine(CURVES["linear"])
    assert measure_cost(machine.run, 20, 60.0, machine.clock) is not None
    assert max(map(max, machine.batches)) == 20


def test_a_model_that_fails_is_not_measured() -> None:
    def fail(_: object, __: RunStop) -> None:
        raise ModelFailed("no such shape")

    assert measure_cost(fail, 512, 60.0) is None


def test_measuring_ends_when_its_time_is_up() -> None:
    """A run that would never end is stopped; two rounds were not complete."""

    def hang(_: object, stopping: RunStop) -> None:
        stopping.then(released.set)
        assert released.wait(PATIENCE_S)
        raise ModelFailed("stopped")

    released = threading.Event()
    assert measure_cost(hang, 512, 0.01) is None
    assert released.is_set()


@pytest.mark.parametrize(
    ("config", "max_s", "is_measured"),
    [
        ("", 60.0, True),
        ("", 0.0, False),
        ("parameters { key: 'batch_overhead_tokens' value { string_value: '16' } }", 60.0, False),
    ],
    ids=["by default", "switched off", "said in the configuration"],
)
def test_a_text_model_is_measured_while_it_loads(
    tmp_path: Path, config: str, max_s: float, is_measured: bool
) -> None:
    write_model(tmp_path, "m", classifier_manifest())
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    sessions = FakeSessions(m=lambda: text_session("logits", 3))
    settings = Settings(model_repository=tmp_path, device="cpu", measure_cost_s=max_s)
    load_model(ModelSource.of(tmp_path, "m"), settings, Openers(sessions, FakeDecoders()))
    assert [len(run["input_ids"]) for run in batches_of(sessions["m"])] == [
        len(batch) for batch in BATCHES * (MAX_ROUNDS + 1) * is_measured
    ]


def batches_of(session: FakeSession) -> list[dict[str, np.ndarray]]:
    return [dict(batch) for batch in session.batches]


def test_times_that_do_not_grow_with_their_tokens_give_none() -> None:
    """Every run takes as long: a token costs nothing, and prices in tokens would divide by it."""
    assert fit([(batch, 0.01) for batch in BATCHES]) is None
