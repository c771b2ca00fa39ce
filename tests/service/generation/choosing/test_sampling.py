"""Every choice against the definition written out, slowly, in float64."""

# ruff: noqa: N806 - suffixes are array layouts: B rows, V vocabulary

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.calls.sampling import Sampling
from service.generation.choosing.sampler_state import SamplerState
from tests.fakes.sampling import (
    EOS,
    NO_PROMPT,
    ScriptedState,
    choose,
    choose_one,
    edited,
    probabilities,
    random_logits,
    state_of,
)

FILTERS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"temperature": 4.0},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 60, "temperature": 2.0},
    {"top_k": 400},
    {"top_k": 10_000},
    {"top_p": 1e-9},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"top_p": 0.9999999, "temperature": 0.5},
    {"top_p": 0.8, "temperature": 100.0},
    {"min_p": 1.0},
    {"min_p": 0.05},
    {"min_p": 1e-6},
    {"min_p": 0.02, "top_p": 0.7},
    {"min_p": 0.02, "top_k": 20},
    {"top_k": 30, "top_p": 0.8},
    {"top_k": 300, "top_p": 0.95, "min_p": 0.001, "temperature": 1.5},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("vocab_size", [50, 5_000])
def test_the_inverse_of_the_cumulative_sum_picks_from_what_the_filters_leave(
    filters: dict[str, Any], vocab_size: int
) -> None:
    """At the middle of every token's share of [0, 1), and at both ends of it."""
    logits, params = random_logits(vocab_size, vocab_size), Sampling(**filters)
    expected = probabilities(logits.astype(np.float64), params)
    kept = np.flatnonzero(expected)
    shares, middles = expected[kept], np.cumsum(expected[kept]) - expected[kept] / 2
    is_wide = shares > 1e-4  # rounding of float32 sums is far below
    uniforms = [0.0, 1.0 - 2**-53, *middles[is_wide].tolist()]
    state = ScriptedState(params, uniforms)
    first, last, *picked = [choose_one(logits, state) for _ in uniforms]
    assert picked == kept[is_wide].tolist()
    assert {first, last} <= set(kept.tolist())
    if is_wide[[0, -1]].all():
        assert (first, last) == (kept[0], kept[-1])


@pytest.mark.parametrize("filters", FILTERS[1:], ids=str)
def test_tokens_come_as_often_as_their_probabilities_say(filters: dict[str, Any]) -> None:
    """4,000 draws of 30 tokens, each within 5 standard deviations, none of those filtered out."""
    logits, num_draws = random_logits(5, 30, spread=1.5), 4_000
    state = state_of(seed=11, **filters)
    counts = np.zeros(30)
    for _ in range(num_draws):
        counts[choose_one(logits, state)] += 1
    expected = probabilities(logits.astype(np.float64), state.params)
    deviations = np.sqrt(num_draws * expected * (1 - expected))
    assert (np.abs(counts - num_draws * expected) <= 5 * deviations + 1e-3).all()


def test_a_token_of_probability_0_never_comes_and_the_last_id_can() -> None:
    """Weights of e^-1000 are 0; ends of blocks of sums and of the row included."""
    logits = np.full(1_000, -1_000.0, np.float32)
    logits[[256, 999]] = 0.0
    uniforms = [0.0, 0.4999, 0.5001, 1.0 - 2**-53]
    state = ScriptedState(Sampling(), uniforms)
    assert [choose_one(logits, state) for _ in uniforms] == [256, 256, 999, 999]


def test_greedy_takes_the_largest_and_at_a_tie_the_lowest_id() -> None:
    state = state_of(temperature=0)
    assert choose_one([1.0, 3.0, 2.0, 3.0], state) == 1
    assert choose_one([-np.inf, -np.inf, -5.0], state) == 2


def test_greedy_draws_no_number() -> None:
    assert choose_one([1.0, 3.0], ScriptedState(Sampling(temperature=0), [])) == 1


def test_at_a_tie_filters_keep_the_lower_ids() -> None:
    """Five alike: two by top_k, three by the 60 % that top_p asks for."""
    for filters, kept in (({"top_k": 2}, {0, 1}), ({"top_p": 0.59}, {0, 1, 2})):
        state = state_of(seed=1, **filters)
        assert {choose_one([1.0] * 5, state) for _ in range(100)} == kept


def test_top_p_counts_what_top_k_left() -> None:
    """0.4, 0.3, 0.2, 0.1: of the two best, the first has 57 % alone, in all it has not 50 %."""
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    state = state_of(seed=1, top_k=2, top_p=0.5)
    assert {choose_one(logits, state) for _ in range(100)} == {0}
    state = state_of(seed=1, top_p=0.5)
    assert {choose_one(logits, state) for _ in range(100)} == {0, 1}


def test_logits_of_equal_weight_keep_their_order() -> None:
    """At temperature 100 these differ by less than a float32 near 1 can tell."""
    logits = np.array([5.0, np.nextafter(np.float32(5.0), np.float32(6.0))], np.float32)
    for filters in ({"top_k": 1}, {"top_p": 0.4}):
        state = state_of(seed=1, temperature=100.0, **filters)
        assert {choose_one(logits, state) for _ in range(20)} == {1}


@pytest.mark.parametrize("temperature", [1e-5, 1e-4, 100.0])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    with np.errstate(all="raise", under="ignore"):
        logits = [-3e38, 3e38, 1.0, -np.inf]
        assert choose_one(logits, state_of(temperature=temperature)) == 1


def test_the_repetition_penalty_is_ctrls() -> None:
    """Prompt and output; above 0 divided, below multiplied: 4 / 2 < 3, and -1 * 2 < -1.5."""
    assert choose_one([4.0, 3.0], state_of([0], temperature=0, repetition_penalty=2.0)) == 1
    assert choose_one([-1.0, -1.5], state_of([0], temperature=0, repetition_penalty=2.0)) == 1
    state = state_of(temperature=0, repetition_penalty=2.0)
    assert [choose_one([4.0, 3.0], state) for _ in range(3)] == [0, 1, 0]


def test_presence_and_frequency_count_the_output_only() -> None:
    """Presence once, frequency each time: 1.0 of lead is worth one 0.6, and two of 0.6 are more."""
    state = state_of([0, 0, 0], temperature=0, frequency_penalty=0.6)
    assert [choose_one([1.0, 0.0], state) for _ in range(4)] == [0, 0, 1, 0]
    state = state_of([0, 0, 0], temperature=0, presence_penalty=0.6)
    assert [choose_one([1.0, 0.0], state) for _ in range(4)] == [0, 0, 0, 0]


def test_penalties_follow_a_text_of_many_different_tokens() -> None:
    """200 ids beside the two of the prompt, which have no presence: only output has."""
    state = state_of([3, 4], temperature=0, repetition_penalty=0.01, presence_penalty=0.5)
    output = list(range(10, 210))
    for token in output:
        state.append(token)
    logits = random_logits(2, 300)
    expected = edited(logits, state.params, [3, 4], output)
    np.testing.assert_allclose(state.edit(logits, np.empty_like(logits)), expected, 1e-5)


def test_no_ngram_comes_twice() -> None:
    """Of 4 tokens there are 16 pairs: at most 17 tokens in a row, then none is left."""
    logits, state = random_logits(0, 4), state_of(temperature=0, no_repeat_ngram_size=2)
    tokens = []
    while (sampled := choose(logits, state)).is_valid[0]:
        tokens.append(int(sampled.token_ids[0]))
    assert max(Counter(pairwise(tokens)).values()) == 1
    assert len(tokens) <= 17


@pytest.mark.parametrize(("size", "banned"), [(1, {1, 2, 3}), (2, {2, 3}), (3, {2}), (4, set())])
def test_ngrams_of_the_prompt_count(size: int, banned: set[int]) -> None:
    """After "1 2 3 1 3 1 ...": what followed 1, and what followed "3 1"."""
    prompt = [3, 1, 2, 1, 3, 1]
    state = state_of(prompt, seed=0, no_repeat_ngram_size=size)
    edited_V = state.edit(np.zeros(5, np.float32), np.empty(5, np.float32))
    assert set(np.flatnonzero(np.isinf(edited_V)).tolist()) == banned


def test_ends_are_banned_until_the_least_number_of_tokens() -> None:
    """End of text and stop ids, for three tokens; the fourth may be one."""
    logits = [9.0, 8.0, 1.0]
    state = state_of(temperature=0, min_tokens=3, stop_token_ids=(1,))
    assert [choose_one(logits, state) for _ in range(4)] == [2, 2, 2, 0]
    assert state.num_generated == 4


def test_an_end_of_text_that_is_ignored_is_a_token_like_others() -> None:
    state = state_of(temperature=0, min_tokens=3, stop_token_ids=(1,), ignore_eos=True)
    assert choose_one([9.0, 9.5, 1.0], state) == 0


def test_only_allowed_and_not_banned_tokens_come() -> None:
    logits = [5.0, 4.0, 3.0, 2.0]
    assert choose_one(logits, state_of(temperature=0, allowed_token_ids=(3, 2))) == 2
    assert choose_one(logits, state_of(temperature=0, banned_token_ids=(0, 1))) == 2
    state = state_of(temperature=0, allowed_token_ids=(0, 3), banned_token_ids=(0,))
    assert choose_one(logits, state) == 3


def test_a_models_own_first_tokens_come_first_and_what_it_bans_never() -> None:
    """Whatever a request allows or bans; logprobs are the model's all the same."""
    state = SamplerState(
        Sampling(temperature=0, banned_token_ids=(3,), min_tokens=2, logprobs=0),
        NO_PROMPT,
        (EOS,),
        first_token_ids=(3, EOS),
        banned_token_ids=(1,),
    )
    logits = [4.0, 5.0, 3.0, -2.0]
    assert choose_one(logits, state) == 3
    sampled = choose(logits, state.fork())
    assert sampled.token_ids.tolist() == [EOS]
    logprob = sampled.logprobs[0]
    assert logprob is not None
    assert logprob.logprob == pytest.approx(4.0 - np.log(np.exp(logits).sum()))
    assert [choose_one(logits, state) for _ in range(2)] == [EOS, EOS]


def test_a_bias_is_added_and_lifts_no_ban() -> None:
    logits = [5.0, 4.0, 3.0]
    assert choose_one(logits, state_of(temperature=0, logit_bias={2: 2.5, 0: -0.5})) == 2
    state = state_of(temperature=0, banned_token_ids=(2,), logit_bias={2: 100.0})
    assert choose_one(logits, state) == 0


def test_logprobs_are_of_the_logits_as_they_came() -> None:
    """Whatever bans, penalties and temperature did to the choice."""
    logits = random_logits(3, 700)
    exact = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    best = np.argsort(-exact)
    state = state_of(temperature=0.5, seed=4, banned_token_ids=(int(best[0]),), logprobs=50)
    (found,) = choose(logits, state).logprobs
    assert found is not None
    assert found.token_id != best[0]
    assert found.logprob == pytest.approx(exact[found.token_id], abs=1e-5)
    assert found.logit == logits[found.token_id]
    assert [token_id for token_id, _ in found.top] == best[:50].tolist()
    assert [logprob for _, logprob in found.top] == pytest.approx(exact[best[:50]], abs=1e-5)


def test_logprobs_of_a_whole_vocabulary_add_up_to_1() -> None:
    (found,) = choose(random_logits(0, 20), state_of(logprobs=20, seed=0)).logprobs
    assert found is not None
    assert sum(np.exp(logprob) for _, logprob in found.top) == pytest.approx(1.0, abs=1e-6)


def test_the_most_likely_are_in_order_of_their_ids_where_they_are_alike() -> None:
    (found,) = choose(np.zeros(1_000), state_of(logprobs=20, seed=0)).logprobs
    assert found is not None
    assert [token_id for token_id, _ in found.top] == list(range(20))


def test_logprobs_are_those_asked_for() -> None:
    """None, the chosen token's alone, and no more than there are finite ones; ties by id."""
    logits = [[1.0, 2.0, 2.0, -np.inf]] * 3
    states = (
        state_of(temperature=0),
        state_of(temperature=0, logprobs=0),
        state_of(temperature=0, logprobs=9),
    )
    none, alone, all_of_them = choose(logits, *states).logprobs
    assert none is None
    assert alone is not None
    assert all_of_them is not None
    assert (alone.token_id, alone.top) == (1, ())
    assert [token_id for token_id, _ in all_of_them.top] == [1, 2, 0]
    assert alone.logprob == all_of_them.logprob == all_of_them.top[0][1]


@pytest.mark.parametrize("params", [{"temperature": 0}, {"top_p": 0.9}, {"banned_token_ids": (1,)}])
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_a_row_of_no_finite_logits_fails_alone(bad: str, params: dict[str, Any]) -> None:
    logits = np.stack([random_logits(seed, 100) for seed in range(3)])
    logits[1, 40] = float(bad)
    if bad == "-inf":
        logits[1] = -np.inf
    states = [state_of(seed=1, logprobs=1, **params) for _ in range(3)]
    alone = [choose_one(logits[row], state_of(seed=1, **params)) for row in (0, 2)]
    sampled = choose(logits, *states)
    assert sampled.is_valid.tolist() == [True, False, True]
    assert sampled.token_ids.tolist() == [alone[0], 0, alone[1]]
    assert sampled.logprobs[1] is None
    assert [state.num_generated for state in states] == [1, 0, 1]


def test_a_row_with_nothing_left_to_choose_fails_alone() -> None:
    """The one allowed token may not come twice."""
    states = [
        state_of([2], allowed_token_ids=(2,), no_repeat_ngram_size=1),
        state_of(temperature=0),
    ]
    assert choose(np.eye(2, 3, dtype=np.float32), *states).is_valid.tolist() == [False, True]


def test_no_rows_are_sampled_to_nothing() -> None:
    sampled = choose(np.empty((0, 5)))
    assert (sampled.token_ids.shape, sampled.is_valid.shape, sampled.logprobs) == ((0,), (0,), [])


def test_one_token_to_choose_from_is_chosen() -> None:
    assert choose_one([3.0], state_of(top_k=1, top_p=0.5, logprobs=20)) == 0


MIXED: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.8},
    {"top_p": 0.9, "logprobs": 3},
    {"top_k": 40},
    {"min_p": 0.01, "frequency_penalty": 0.5},
    {"temperature": 0.0, "repetition_penalty": 1.3, "logprobs": 0},
    {"top_p": 0.95, "no_repeat_ngram_size": 2, "min_tokens": 3},
]


@pytest.mark.parametrize("params", MIXED, ids=str)
def test_a_seeded_row_is_the_same_to_the_bit_beside_any_other_rows(params: dict[str, Any]) -> None:
    """Alone, and at the ends and in the middle of batches of 7 and 32, four steps each."""
    steps = [random_logits(step, 3_001) for step in range(4)]

    def run(num_rows: int, place: int) -> list[object]:
        states = [state_of([1, 2], **MIXED[row % len(MIXED)]) for row in range(num_rows)]
        states[place] = state_of([1, 2], seed=7, **params)
        results: list[object] = []
        for step, logits in enumerate(steps):
            batch = np.stack([random_logits(100 * step + row, 3_001) for row in range(num_rows)])
            batch[place] = logits
            sampled = choose(batch, *states)
            results.append((int(sampled.token_ids[place]), sampled.logprobs[place]))
        return results

    alone = run(1, 0)
    for num_rows, place in ((7, 0), (7, 3), (7, 6), (32, 0), (32, 17), (32, 31)):
        assert run(num_rows, place) == alone


def test_samples_of_one_seed_differ_by_their_index_and_repeat() -> None:
    logits = np.zeros(1_000)
    first, second, again = (state_of(sample_index=index, seed=5) for index in (0, 1, 0))
    tokens = [[choose_one(logits, state) for _ in range(8)] for state in (first, second, again)]
    assert tokens[0] == tokens[2] != tokens[1]


def test_without_a_seed_two_samplers_differ() -> None:
    tokens = [
        [choose_one(np.zeros(1_000), state) for _ in range(8)] for state in (state_of(), state_of())
    ]
    assert tokens[0] != tokens[1]


# Eighths, halves and doubles: exact in float32 too, so that the two agree on what is a tie.
EIGHTHS = st.integers(-16, 16).map(lambda value: value / 8)
LOGITS = st.lists(
    EIGHTHS | st.integers(-4, 4).map(float) | st.just(-np.inf), min_size=2, max_size=12
).filter(lambda logits: max(logits) > -np.inf)
IDS = st.lists(st.integers(0, 1), max_size=2).map(tuple)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 0.2, 1.0, 3.0]),
        "top_k": st.integers(0, 14),
        "top_p": st.floats(0.01, 1.0),
        "min_p": st.floats(0.0, 1.0),
        "repetition_penalty": st.sampled_from([0.5, 1.0, 2.0]),
        "presence_penalty": EIGHTHS,
        "frequency_penalty": EIGHTHS,
        "no_repeat_ngram_size": st.integers(0, 3),
        "logit_bias": st.dictionaries(st.integers(0, 1), EIGHTHS),
        "allowed_token_ids": IDS,
        "banned_token_ids": IDS,
        "min_tokens": st.integers(0, 4),
        "stop_token_ids": IDS,
        "ignore_eos": st.booleans(),
    },
)


@settings(max_examples=300)
@given(LOGITS, PARAMS, st.lists(st.integers(0, 1), max_size=6), st.integers(0, 3))
def test_every_choice_is_one_that_the_definition_allows(
    logits: list[float], values: dict[str, Any], prompt: list[int], seed: int
) -> None:
    """Six tokens of any parameters: each of a probability above 0, or none where none is left.

    Before each, the edited logits are those of the definition.
    """
    state = state_of(prompt, seed=seed, **values)
    output: list[int] = []
    for _ in range(6):
        logits_V = np.array(logits, np.float32)
        expected = edited(logits_V, state.params, prompt, output)
        np.testing.assert_allclose(state.edit(logits_V, np.empty_like(logits_V)), expected, 1e-6)
        sampled = choose(logits, state)
        assert sampled.is_valid[0] == (expected.max() > -np.inf)
        if not sampled.is_valid[0]:
            return
        token = int(sampled.token_ids[0])
        if state.params.is_greedy:
            assert expected[token] == pytest.approx(expected.max(), abs=1e-4)
        else:
            assert probabilities(expected, state.params, slack=1e-4)[token] > 0
        output.append(token)
    assert state.num_generated == 6


@pytest.mark.parametrize("others", [{}, {"top_k": 5}, {"min_p": 0.1}, {"temperature": 3.0}])
@pytest.mark.parametrize("size", [40, 9_000])
def test_no_mass_at_all_leaves_the_likeliest_token(size: int, others: dict[str, Any]) -> None:
    random = np.random.default_rng(size)
    logits = random.normal(size=(4, size)).astype(np.float32)
    states = [state_of(top_p=0.0, seed=seed, **others) for seed in range(4)]
    assert choose(logits, *states).token_ids.tolist() == logits.argmax(axis=1).tolist()


def test_bad_words_ban_the_token_that_would_complete_them() -> None:
    logits = np.zeros((1, 10), np.float32)
    logits[0, [1, 2, 3]] = 3.0, 2.0, 1.0
    words = ((1, 1), (3,), (1, 2))
    state = SamplerState(Sampling(temperature=0), np.array([1]), (), bad_words=words)
    said = [choose_one(logits[0], state) for _ in range(2)]
    assert said == [1, 0]  # neither 1, nor 2, nor 3 may come behind 1; the prompt does not count
    fork = state.fork()
    assert [choose_one(logits[0], each) for each in (state, fork)] == [1, 1]
    assert [choose_one(logits[0], each) for each in (state, fork)] == [0, 0]
