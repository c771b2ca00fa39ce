"""What the queue's policy makes of texts of real lengths, replayed in virtual time.

The curves are measured ones, so these figures hold for machines like that; nothing here is timed.
"""

from dataclasses import replace

import pytest

from loadtests.load.lengths import mixed_sizes
from service.batching.limits import BatchLimits
from service.runtime.cost import CostCurve
from tests.service.batching.replay import PACKED, Replay, limits_of, replay

CLIENTS = 32
SIZES = mixed_sizes(1_000)
each_model = pytest.mark.parametrize("cost", PACKED.values(), ids=PACKED)


def replayed(cost: CostCurve, limits: BatchLimits | None = None) -> Replay:
    return replay(limits or limits_of(cost), cost, SIZES, CLIENTS)


@each_model
def test_padding_is_less_than_three_hundredths_of_what_is_computed(cost: CostCurve) -> None:
    """32 clients, reviews, messages and passages; attention's own padding is counted."""
    assert replayed(cost).computed_padding_share < 0.03


@each_model
def test_the_hundredth_that_waits_longest_waits_for_three_times_what_is_in_flight(
    cost: CostCurve,
) -> None:
    """A text has at most 31 before it: 99 % wait less than thrice the work of 32 texts."""
    result = replayed(cost)
    in_flight_s = CLIENTS * result.useful / len(SIZES) * cost.token_s
    assert len(result.waits_s) == len(SIZES)
    assert result.wait_s(0.99) < 3 * in_flight_s


@each_model
def test_measured_costs_make_better_batches_than_counted_tokens(cost: CostCurve) -> None:
    """Though they are kept small for caches, which a replay has not."""
    assert replayed(cost).efficiency > 1.015 * replayed(cost, BatchLimits()).efficiency


@each_model
def test_a_graph_that_computes_padding_is_slower_at_its_best(cost: CostCurve) -> None:
    padded = replace(cost, padding=1.0)
    best = max(replayed(padded).efficiency, replayed(padded, BatchLimits()).efficiency)
    assert replayed(cost).efficiency > 1.04 * best


def test_rows_alike_are_never_padded_and_fill_the_runs() -> None:
    """Texts of 128 tokens: 4 are what fits 16 prices of a run, 576 tokens; nothing is padding."""
    cost = PACKED["BERT-base, int8"]
    result = replay(limits_of(cost), cost, [128] * 512, CLIENTS)
    assert result.padding_share == 0
    assert result.num_rows / result.num_runs == 4
    assert result.efficiency > 16 / 17.5  # of 16 parts and the overhead; the last runs are alone
