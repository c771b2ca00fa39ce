"""A choice from a row's likeliest tokens is the choice from the whole row, or is left to it."""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, K candidates, V vocabulary

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.generation.choosing.sampler_state import SamplerState
from service.generation.choosing.sampling import log_total, sample
from service.generation.choosing.step_logits import Candidates, StepLogits, _Row
from tests.fakes.sampling import random_logits, state_of

VOCAB_SIZE = 600
NUM_BEST = 64


@dataclass
class Device:
    """Logits that are elsewhere: their candidates, and the rows that were fetched."""

    logits: np.ndarray  # float32 [B, V]
    num_best: int = NUM_BEST
    error: float = 0.0  # relative, of the sums that the graph computes
    fetched: list[int] = field(default_factory=list)

    def fetch(self, rows: np.ndarray) -> np.ndarray:
        self.fetched += rows.tolist()
        rows_BV: np.ndarray = self.logits[rows]
        return rows_BV

    @property
    def step_logits(self) -> StepLogits:
        order_BV = np.argsort(-self.logits, axis=1, kind="stable")
        # In any order, since which of two alike a device puts first is open.
        ids_BK = np.random.default_rng(0).permuted(order_BV[:, : self.num_best], axis=1)
        with np.errstate(all="ignore"):
            sums = [log_total(row) + np.log1p(self.error) for row in self.logits]
        candidates = Candidates(
            ids_BK,
            np.take_along_axis(self.logits, ids_BK, axis=1),
            np.array(sums, np.float32),
            self.logits.shape[1],
        )
        return StepLogits(np.arange(len(self.logits)), self.fetch, candidates)


def both(
    logits_BV: np.ndarray, num_best: int = NUM_BEST, error: float = 0.0, **params: Any
) -> list[int]:
    """The rows that were fetched, after both ways have chosen the same twice, by one generator."""

    def states() -> list[SamplerState]:
        return [state_of([1, 2, 3], row, seed=5, **params) for row in range(len(logits_BV))]

    device, ours, theirs = Device(logits_BV, num_best, error), states(), states()
    for _ in range(2):
        found, expected = device.step_logits.sample(ours), sample(logits_BV, theirs)
        assert found.is_valid.dtype == np.bool_
        assert found.is_valid.tolist() == expected.is_valid.tolist()
        assert found.token_ids.tolist() == expected.token_ids.tolist()
        for one, other in zip(found.logprobs, expected.logprobs, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert one.token_id == other.token_id
                assert one.logprob == pytest.approx(other.logprob, abs=2e-4)
                assert [token for token, _ in one.top] == [token for token, _ in other.top]
                assert [p for _, p in one.top] == pytest.approx([p for _, p in other.top], abs=2e-4)
    assert [each.draw() for each in ours] == [each.draw() for each in theirs]
    return sorted(set(device.fetched))


@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.0, 0.3, 2.0, 6.0, 30.0]),
    digits=st.sampled_from([0, 1, 6]),  # few digits make many ties
    num_best=st.sampled_from([1, 2, 8, NUM_BEST, VOCAB_SIZE]),
    error=st.sampled_from([-3e-5, 0.0, 3e-5]),
    params=st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.0, 0.2, 0.7, 1.0, 1.3, 5.0, 100.0]),
            "top_k": st.sampled_from([0, 1, 2, 5, 40, NUM_BEST, 500, 10_000]),
            "top_p": st.one_of(st.just(1.0), st.floats(0.001, 1.0)),
            "min_p": st.sampled_from([0.0, 0.0, 1e-4, 0.03, 1.0]),
            "logprobs": st.sampled_from([None, 0, 3, 20]),
            "min_tokens": st.sampled_from([0, 1]),
            "presence_penalty": st.sampled_from([0.0, 0.0, 0.0, 1.0]),
        }
    ),
)
def test_candidates_choose_as_whole_rows_do(
    seed: int, spread: float, digits: int, num_best: int, error: float, params: dict[str, Any]
) -> None:
    random = np.random.default_rng(seed)
    logits_BV = (random.normal(size=(4, VOCAB_SIZE)) * spread).round(digits).astype(np.float32)
    both(logits_BV, num_best, error, **params)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0},
        {"temperature": 0, "logprobs": 20},
        {"top_k": 40},
        {"top_k": 40, "top_p": 0.9, "logprobs": 5},
        {"top_p": 0.9},
        {"top_p": 0.9, "temperature": 0.7},
        {"top_p": 0.5, "temperature": 1.2},
        {"min_p": 0.05},
        {"min_p": 0.05, "top_p": 0.8},
    ],
    ids=str,
)
def test_what_texts_ask_for_is_decided_without_a_whole_row(params: dict[str, Any]) -> None:
    """16 rows, peaked as texts are, of which at most three are fetched."""
    logits_BV = np.stack([random_logits(row, VOCAB_SIZE, spread=4.0) for row in range(16)])
    assert len(both(logits_BV, **params)) <= 3


@pytest.mark.parametrize(
    "params",
    [
        {},  # any token may come
        {"top_k": NUM_BEST + 1},
        {"top_p": 0.9999, "temperature": 5.0},
        {"min_p": 1e-9},
        {"temperature": 0, "logit_bias": {3: 1.0}},
        {"temperature": 0, "repetition_penalty": 1.1},
        {"temperature": 0, "banned_token_ids": (7,)},
        {"temperature": 0, "no_repeat_ngram_size": 2},
    ],
    ids=str,
)
def test_whole_rows_are_read_for_what_candidates_cannot_decide(params: dict[str, Any]) -> None:
    logits_BV = np.stack([random_logits(row, VOCAB_SIZE, spread=2.0) for row in range(3)])
    assert both(logits_BV, **params) == [0, 1, 2]


def test_ends_are_banned_in_the_whole_row_until_enough_tokens_came() -> None:
    """`min_tokens` is 1: the first of two choices reads the row, the second does not."""
    logits_BV = random_logits(0, VOCAB_SIZE, spread=4.0)[None]
    device, state = Device(logits_BV), state_of(temperature=0, min_tokens=1)
    for _ in range(2):
        device.step_logits.sample([state])
    assert device.fetched == [0]


def test_a_tie_with_the_last_candidate_is_left_to_the_whole_row() -> None:
    """Of 600 alike, which 64 a device calls the best is open."""
    logits_BV = np.zeros((1, VOCAB_SIZE), np.float32)
    assert both(logits_BV, temperature=0) == [0]
    assert both(logits_BV, top_k=5) == [0]
    assert both(logits_BV, top_p=0.01) == [0]


def test_of_two_likeliest_tokens_the_lower_id_comes_whatever_their_order() -> None:
    """In the second of two rows; the first has one that is likelier than both."""
    logits_BV = np.zeros((2, VOCAB_SIZE), np.float32)
    logits_BV[0, 40], logits_BV[1, [300, 20]] = 9.0, 5.0
    for order in (1, -1):
        ids_BK = np.array([[40, 1], [300, 20]])[:, ::order]
        logits_BK = np.take_along_axis(logits_BV, ids_BK, axis=1)
        sums = np.array([log_total(row) for row in logits_BV])
        candidates = Candidates(ids_BK, logits_BK, sums, VOCAB_SIZE)
        states = [state_of(temperature=0) for _ in range(2)]
        chosen = candidates.excerpt_for(states)
        assert chosen.ids[1].tolist() == [20, 300]


@pytest.mark.parametrize("error", [-9e-5, 0.0, 9e-5])
@pytest.mark.parametrize("power", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("spread", [0.0, 1.0, 8.0])
def test_the_mass_of_a_vocabulary_is_within_its_bounds(
    error: float, power: float, spread: float
) -> None:
    """Known are 3 of 600 logits, and the sum of all, with an error that float32 may have."""
    logits = np.sort(random_logits(2, VOCAB_SIZE, spread=spread).astype(np.float64))[::-1]
    weights = np.exp((logits - logits[0]) * power)
    row = _Row(logits[:3], logits[0], logits[2], log_total(logits) + error, VOCAB_SIZE)
    low, high = row._bounds(weights[:3].sum(), weights[2], power)
    assert low <= weights.sum() <= high


def test_rows_that_are_not_finite_fail_alone() -> None:
    logits_BV = np.stack([random_logits(row, VOCAB_SIZE, spread=4.0) for row in range(4)])
    logits_BV[0, 17], logits_BV[1, 3], logits_BV[2] = np.nan, np.inf, -np.inf
    found = Device(logits_BV).step_logits.sample([state_of(temperature=0) for _ in range(4)])
    assert found.is_valid.tolist() == [False, False, False, True]


def test_tokens_of_probability_0_behind_the_candidates_change_nothing() -> None:
    """Nine tokens may come; the other candidates are -inf, as are all that are none."""
    logits_BV = np.full((1, VOCAB_SIZE), -np.inf, np.float32)
    logits_BV[0, ::70] = np.arange(9)
    assert both(logits_BV, top_k=50) == []
    assert both(logits_BV, temperature=0, logprobs=3) == []


def test_parts_of_a_step_keep_their_rows() -> None:
    logits_BV = np.stack([random_logits(row, VOCAB_SIZE) for row in range(5)])
    for logits in (StepLogits.of(logits_BV), Device(logits_BV).step_logits):
        part = logits.take([4, 1, 0]).take(slice(1, 3))
        assert len(part) == 2
        np.testing.assert_array_equal(part.whole(), logits_BV[[1, 0]])
        np.testing.assert_array_equal(logits.whole_rows([2])[0], logits_BV[2])
    assert StepLogits.of(logits_BV).whole() is logits_BV
    assert np.shares_memory(StepLogits.of(logits_BV).whole_rows([2])[0], logits_BV)
