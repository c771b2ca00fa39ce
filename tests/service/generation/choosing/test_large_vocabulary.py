"""Choices from large vocabularies, where few tokens are looked at, against the definition."""

from typing import Any

import numpy as np
import pytest

from service.calls.sampling import Sampling
from service.generation.choosing.sampler_state import SamplerState
from tests.fakes.sampling import (
    EOS,
    NO_PROMPT,
    choose,
    choose_one,
    edited,
    probabilities,
    random_logits,
    state_of,
)

NUM_TOKENS = 20_000
NUM_DRAWS = 3_000
# Spread of the logits: nearly flat, as text is, and a few tokens that are nearly certain.
SPREADS = (0.3, 2.5, 6.0)
LARGE: list[dict[str, Any]] = [
    {},
    {"temperature": 0.6},
    {"temperature": 5.0},
    {"logit_bias": {3: 2.0}},  # edited: chosen by itself, not with the others
    {"top_k": 50},
    {"top_k": 50, "top_p": 0.9, "min_p": 0.01},
    {"top_k": 5_000},
]


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("params", LARGE, ids=str)
def test_tokens_of_a_large_vocabulary_come_as_often_as_they_should(
    params: dict[str, Any], spread: float
) -> None:
    """Chi-square over 40 groups of equal expected counts: below what comes once in 10,000 times."""
    logits = random_logits(4, NUM_TOKENS, spread)
    states = [state_of(seed=seed, **params) for seed in range(30)]
    batch = np.stack([logits] * len(states))
    counts = np.zeros(NUM_TOKENS)
    for _ in range(NUM_DRAWS // len(states)):
        np.add.at(counts, choose(batch, *states).token_ids, 1)
    wanted = edited(logits, states[0].params, [], [])
    expected = NUM_DRAWS * probabilities(np.array(wanted, np.float64), states[0].params)
    assert counts[expected == 0].sum() == 0
    order = np.argsort(-expected)
    groups = np.minimum((np.cumsum(expected[order]) - 1e-9) * 40 / NUM_DRAWS, 39).astype(int)
    found, due = (np.bincount(groups, values[order], 40) for values in (counts, expected))
    is_used = due > 0
    statistic = float((((found - due) ** 2)[is_used] / due[is_used]).sum())
    freedom = int(is_used.sum()) - 1
    # Wilson and Hilferty's approximation of the quantile, 3.72 standard deviations up.
    bound = (
        freedom * (1 - 2 / (9 * freedom) + 3.72 * (2 / (9 * freedom)) ** 0.5) ** 3
        if freedom
        else 0.1
    )
    assert statistic <= bound


NUM_LIKELY = 9_600
HEAVY = np.arange(7, NUM_LIKELY, 150)  # 64 ids all over the vocabulary, each likely
# Parameters that change which of many likely tokens may come, or how often.
OBEYED: list[dict[str, Any]] = [
    {"temperature": 2.0},
    {"top_p": 0.5},
    {"min_p": 0.9},
    {"banned_token_ids": tuple(HEAVY[::2].tolist())},
    {"allowed_token_ids": tuple(HEAVY[::2].tolist())},
    {"min_tokens": 4, "stop_token_ids": tuple(HEAVY.tolist())},
    {"logit_bias": dict.fromkeys(HEAVY.tolist(), -100.0)},
    {"repetition_penalty": 100.0},
    {"presence_penalty": 2.0},
    {"frequency_penalty": 2.0},
    {"no_repeat_ngram_size": 1},
]


@pytest.mark.parametrize("params", OBEYED, ids=str)
def test_every_parameter_is_obeyed_in_a_large_vocabulary(params: dict[str, Any]) -> None:
    """1,200 draws of logits that a sampler without the parameter would draw otherwise.

    64 tokens have each e^4 times the weight of every other one, a quarter of the whole together;
    they are the prompt and were said once. All rows share a step with a greedy one, and every
    second row's logits are lower by 30. What the definition excludes never comes, and these 64 come
    as often as it says, within 5 standard deviations.
    """
    logits = random_logits(5, NUM_LIKELY, spread=0.1) + 1
    logits[HEAVY] += 4
    prompt = HEAVY.tolist()
    said = [] if "min_tokens" in params else prompt
    num_rows, num_heavy = 60, 0
    wanted = edited(logits, Sampling(**params), prompt, said)
    expected = probabilities(wanted, Sampling(**params))
    possible = probabilities(wanted, Sampling(**params), slack=1e-4) > 0
    share, unobeyed = expected[HEAVY].sum(), probabilities(logits.astype(float), Sampling())
    # The test could not tell otherwise: the parameter changes what may come, or how often.
    assert unobeyed[~possible].sum() > 0.05 or abs(share - unobeyed[HEAVY].sum()) > 0.05
    for step in range(20):
        states = [state_of(prompt, seed=100 * step + row, **params) for row in range(num_rows)]
        for state in states:
            for token_id in said:
                state.append(token_id)
        batch = np.stack([logits - 30 * (row % 2) for row in range(1 + num_rows)])
        token_ids = choose(batch, state_of(temperature=0.0), *states).token_ids[1:]
        assert possible[token_ids].all()
        num_heavy += int(np.isin(token_ids, HEAVY).sum())
    num_draws = 20 * num_rows
    deviation = (num_draws * share * (1 - share)) ** 0.5
    assert abs(num_heavy - num_draws * share) <= 5 * deviation + 1e-6


@pytest.mark.parametrize("params", [{}, {"top_p": 0.999}, {"top_k": 40}], ids=str)
def test_a_row_of_a_large_vocabulary_draws_by_its_own_logits(params: dict[str, Any]) -> None:
    """Rows of one step whose likely tokens are disjoint slices; every third row is greedy."""
    num_rows = 8
    size = NUM_LIKELY // num_rows
    batch = np.full((num_rows, NUM_LIKELY), -60.0, np.float32)
    for row in range(num_rows):
        batch[row, row * size : (row + 1) * size] = 0.0
    for seed in range(20):
        states = [
            state_of(
                seed=seed, sample_index=row, **({"temperature": 0.0} if row % 3 == 0 else params)
            )
            for row in range(num_rows)
        ]
        token_ids = choose(batch, *states).token_ids
        assert (token_ids // size).tolist() == list(range(num_rows))


class UnaskedState(SamplerState):
    """A generator whose number for the lookup among all weights must not be drawn."""

    def draw(self) -> float:
        raise AssertionError("the weights of the whole vocabulary were computed")


@pytest.mark.parametrize(
    ("params", "is_fast"),
    [
        ({}, True),
        ({"temperature": 0.5}, True),
        ({"top_p": 1.0, "top_k": 0, "min_p": 0.0}, True),
        ({"top_p": 0.99}, False),
        ({"top_k": NUM_LIKELY}, False),
        ({"min_p": 1e-9}, False),
        ({"logit_bias": {1: 0.5}, "top_p": 0.99}, False),
    ],
    ids=str,
)
def test_only_rows_without_filters_take_the_way_that_looks_at_few_tokens(
    params: dict[str, Any], is_fast: bool
) -> None:
    """Of a large vocabulary whose tokens are all alike, so that the first proposal is kept."""
    assert Sampling(**params).is_unfiltered == is_fast
    state = UnaskedState(Sampling(**params), NO_PROMPT, (EOS,))
    logits = np.zeros(NUM_LIKELY)
    if is_fast:
        assert 0 <= choose_one(logits, state) < NUM_LIKELY
    else:
        with pytest.raises(AssertionError, match="whole vocabulary"):
            choose(logits, state)
    with pytest.raises(AssertionError, match="whole vocabulary"):
        choose(logits[:5_000], state)  # a small one has no such way
