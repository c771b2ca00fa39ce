"""Drafts from a text itself: where they come from, when they pay, that they change no text."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pytest

from service.errors import ModelFailed
from service.generation.sequence import DRAFT_PRIOR, DraftRecord, Sequence
from service.generation.steps.speculation import (
    EARNED_PER_STEP,
    FIRST_CREDIT,
    MAX_DRAFTING,
    Draft,
    Speculator,
    lookup,
)
from service.records import FinishReason
from tests.fakes.generation import (
    Answer,
    RecordingObserver,
    ask_all,
    draft_eagerly,
    engine_on,
    request_of,
    sequence_of,
)
from tests.fakes.sessions import END_ID, LETTER_IDS, FakeDecoder, next_id, next_logits

LOOKUPS = [
    ("nothing stands twice", [1, 2, 3, 4, 5, 6], []),
    ("two tokens are chance", [1, 2, 3, 9, 2, 3], []),
    ("what followed", [1, 2, 3, 7, 8, 9, 5, 1, 2, 3], [7, 8, 9, 5]),
    ("the last time counts", [1, 2, 3, 7, 1, 2, 3, 8, 9, 9, 9, 1, 2, 3], [8, 9, 9, 9]),
    ("a text that repeats itself goes on so", [5, 6, 1, 5, 6, 1], [5, 6, 1, 5]),
    ("one token over and over", [4, 4, 4, 4], [4, 4, 4, 4]),
    ("too short to say", [4, 4, 4], []),
    ("one token", [4], []),
]


@pytest.mark.parametrize(
    ("ids", "expected"), [row[1:] for row in LOOKUPS], ids=lambda ids: str(ids)
)
def test_a_draft_is_what_followed_the_last_tokens_before(
    ids: list[int], expected: list[int]
) -> None:
    assert lookup(np.array(ids, np.int32), 4).tolist() == expected
    assert lookup(np.array(ids, np.int32), 0).tolist() == []


# --- whether it pays ------------------------------------------------------------------------------

STEP_COST = 10.0
REPEATING = [1, 2, 3, 4, 5, 6, 7] * 4


def check_cost(num_tokens: int, per_token: float) -> float:
    return STEP_COST * (1 + per_token * (num_tokens - 1))


def cost_of_saying(num_tokens: int, says: str, per_token: float) -> tuple[float, int]:
    """The tokens after a text that repeats itself, and the number of checked drafts.

    The model `says` what is drafted: "all", "none" or each token with probability one half.
    """
    random = np.random.default_rng(3)
    agrees = {"all": 1.0, "none": 0.0, "half": 0.5}[says]
    speculator = Speculator(15)
    sequence = sequence_of(REPEATING, max_tokens=num_tokens)
    cost, num_checks = 0.0, 0
    while sequence.num_output_tokens_left:
        draft = speculator.draft([sequence])
        if draft is None:
            cost += STEP_COST
            said = [REPEATING[sequence.num_tokens % 7]]
            speculator.stepped(1, STEP_COST)
        else:
            ran = check_cost(1 + len(draft.token_ids), per_token)
            is_said = random.random(len(draft.token_ids)) < agrees
            num_agreed = len(is_said) if is_said.all() else int(is_said.argmin())
            said = [*draft.token_ids[:num_agreed].tolist(), REPEATING[0]]
            num_checks += 1
            cost += ran
        assert len(said) <= sequence.num_output_tokens_left
        for _ in said:
            sequence.append(REPEATING[sequence.num_tokens % 7])
        if draft is not None:
            speculator.checked(draft, num_agreed, 1, ran)
    return cost, num_checks


@pytest.mark.parametrize("per_token", [0.0, 0.05, 0.1, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("says", ["all", "half", "none"])
def test_guessing_wrong_costs_a_hundredth_at_most(says: str, per_token: float) -> None:
    """500 tokens, whose text always has a draft: besides the first credit and one run."""
    cost, num_checks = cost_of_saying(500, says, per_token)
    once = FIRST_CREDIT + 15 * per_token  # the first run's cost is not known before
    assert cost <= STEP_COST * (500 * (1 + EARNED_PER_STEP) + once)
    assert num_checks > 0, "or nothing is tried"
    if says == "all" and per_token <= 0.1:
        assert cost < STEP_COST * 500 / 4


def test_what_never_comes_true_is_tried_seldom() -> None:
    cost, num_checks = cost_of_saying(500, "none", 0.1)
    assert num_checks < 25
    assert cost < STEP_COST * 510


def speculator_after(num_rows: int) -> Speculator:
    """One that knows the cost of a step with this number of sequences, and has credit."""
    speculator = Speculator(3)
    for _ in range(500):
        speculator.stepped(num_rows, STEP_COST)
    return speculator


def test_nothing_is_drafted_before_a_step_was_measured() -> None:
    assert Speculator(7).draft([sequence_of(REPEATING)]) is None


def agreeing(prompt: Iterable[int], max_tokens: int = 50) -> Sequence:
    """One that has said what was drafted for it so far."""
    sequence = sequence_of(prompt, max_tokens=max_tokens)
    sequence.drafts.add(30, 30, sequence.num_tokens)
    return sequence


def test_sequences_take_turns_where_each_has_a_draft() -> None:
    speculator = speculator_after(2)
    both = [agreeing(REPEATING), agreeing(REPEATING)]
    turns = [speculator.draft(both) for _ in range(4)]
    drafted = [turn.sequence for turn in turns if turn is not None]
    assert drafted in ([both[0], both[1]] * 2, [both[1], both[0]] * 2)


@pytest.mark.parametrize(
    "others",
    [[range(20)], [REPEATING] * MAX_DRAFTING],
    ids=["one of them has nothing to draft", "too many to take turns"],
)
def test_sequences_that_are_better_off_together_decode_together(
    others: list[Iterable[int]],
) -> None:
    sequences = [agreeing(ids) for ids in (REPEATING, *others)]
    assert speculator_after(len(sequences)).draft(sequences) is None


@pytest.mark.parametrize(("max_tokens", "num_drafted"), [(1, 0), (3, 0), (4, 3), (50, 3)])
def test_no_more_is_drafted_than_may_be_said(max_tokens: int, num_drafted: int) -> None:
    """A draft of n tokens says n + 1."""
    draft = speculator_after(1).draft([agreeing(REPEATING, max_tokens)])
    assert (0 if draft is None else len(draft.token_ids)) == num_drafted


@dataclass
class Forced:
    """A grammar that leaves one next token, a number of times."""

    forced: tuple[int, ...]


def forced(num_tokens: int) -> Sequence:
    sequence = sequence_of(range(20), max_tokens=50)
    sequence.sampler.grammar = Forced(tuple(range(num_tokens)))  # type: ignore[assignment]
    return sequence


@pytest.mark.parametrize(("num_forced", "num_drafted"), [(1, 1), (3, 3), (9, 3)])
def test_forced_tokens_are_drafted_without_credit_for_them(
    num_forced: int, num_drafted: int
) -> None:
    """All of them will be said: a run over four costs 1.3 steps, until one is measured."""
    draft = speculator_after(1).draft([forced(num_forced)])
    assert draft is not None
    assert draft.token_ids.tolist() == list(range(num_drafted))
    assert draft.is_forced


def test_forced_tokens_are_not_drafted_where_a_run_over_them_gains_nothing() -> None:
    """Four tokens in a run that costs 3.7 steps gain less than a tenth, in one of 3.6 more."""
    for cost, is_drafted in ((3.7, False), (3.6, True)):
        speculator = speculator_after(1)
        speculator._check_costs[4] = cost * STEP_COST
        assert (speculator.draft([forced(3)]) is not None) == is_drafted


# --- in the engine: the same text -----------------------------------------------------------------

PERIOD = 5
SURPRISE = 13  # one of this number of tokens is new


class RepeatingDecoder(FakeDecoder):
    """Says what it said `PERIOD` tokens ago, but for a surprise now and then."""

    def _logits_after(self, slot: int, row: tuple[int, ...], num_past: int) -> np.ndarray:
        super()._logits_after(slot, row, num_past)
        ids = self.slots[slot]
        if len(ids) < PERIOD or len(ids) % SURPRISE == 0 or next_id(ids) == END_ID:
            return next_logits(ids)
        logits = np.full(self.vocab_size, -40.0, np.float32)
        logits[list(LETTER_IDS)] = -2.0
        logits[ids[-PERIOD]] = 0.0
        return logits


async def answers(
    prompts: list[str], *, drafts: bool, observer: RecordingObserver | None = None, **params: Any
) -> list[list[Answer]]:
    """To prompts one after the other, so that later ones reuse what earlier ones left."""
    decoder = RepeatingDecoder(num_slots=4, max_tokens=160)
    async with engine_on(decoder, observer=observer) as engine:
        if drafts:
            draft_eagerly(engine)
        return [
            await ask_all(engine, request_of(prompt, received_s=time.monotonic(), **params))
            for prompt in prompts
        ]


PROMPTS = ["what was said is said", "what was said is said again and again"]
KINDS: list[dict[str, Any]] = [
    {"max_tokens": 100},
    {"max_tokens": 3},
    {"max_tokens": 100, "logprobs": 2},
    {"max_tokens": 100, "stop": ("sa", "n", "ti")},
    {"max_tokens": 100, "min_tokens": 40, "stop": ("n",)},
    {"max_tokens": 60, "repetition_penalty": 1.3, "frequency_penalty": 0.1},
    {"max_tokens": 60, "no_repeat_ngram_size": 6},
    {"max_tokens": 100, "stop_token_ids": (ord("g"),), "min_tokens": 5},
    {"max_tokens": 100, "temperature": 0.7, "seed": 5},
    {"max_tokens": 100, "temperature": 1.0, "top_k": 4, "seed": 5, "n": 2, "logprobs": 0},
]


@pytest.mark.parametrize("params", KINDS, ids=str)
async def test_drafts_change_no_text(params: dict[str, Any]) -> None:
    """Tokens, text, log-probabilities and ends; and fewer runs."""
    drafting, plain = RecordingObserver(), RecordingObserver()
    found = await answers(PROMPTS, drafts=True, observer=drafting, **params)
    wanted = await answers(PROMPTS, drafts=False, observer=plain, **params)
    for one, other in zip(chain(*found), chain(*wanted), strict=True):
        assert (one.token_ids, one.text) == (other.token_ids, other.text)
        assert one.logprobs == other.logprobs
    ends = [
        sorted((s.sample_index, str(s.finish_reason), s.stop_reason) for s in observer.ended)
        for observer in (drafting, plain)
    ]
    assert ends[0] == ends[1]
    num_agreed = sum(step.num_agreed for step in drafting.steps)
    assert sum(step.num_drafted for step in drafting.steps) >= num_agreed
    assert not any(step.num_drafted for step in plain.steps)
    if params == KINDS[0]:
        assert len(plain.steps) > 2 * len(drafting.steps)
        num_said = sum(len(answer.token_ids) for (answer,) in found)
        assert num_said == num_agreed + len(drafting.steps)


async def test_leaving_in_the_middle_of_a_draft_leaves_a_sound_slot() -> None:
    """The engine recounts when it is idle; the next one with this beginning copies it."""
    decoder = RepeatingDecoder(num_slots=2, max_tokens=4_000)
    observer = RecordingObserver()
    async with engine_on(decoder, observer=observer) as engine:
        draft_eagerly(engine)
        request = request_of(PROMPTS[1], max_tokens=3_500)  # more than it can write meanwhile
        async with engine.generate(request) as generation:
            async for _ in generation:
                if any(step.num_agreed for step in observer.steps):
                    break
        said = generation.sequences[0]
        prompt = [*said.token_ids[: said.num_tokens].tolist()]
        (answer,) = await ask_all(engine, request_of(prompt, max_tokens=20))
    done = len(prompt) - len(PROMPTS[1])
    plain = RepeatingDecoder(num_slots=2, max_tokens=4_000)
    async with engine_on(plain) as engine:
        (wanted,) = await ask_all(engine, request_of(PROMPTS[1], max_tokens=done + 20))
    assert answer.token_ids == wanted.token_ids[done : done + 20]
    assert observer.ended[0].finish_reason is FinishReason.ABORT
    assert observer.ended[1].num_reused_tokens > len(PROMPTS[1])


class FailingDecoder(RepeatingDecoder):
    """A run over a draft gives no numbers but for the first token, until it is sound."""

    is_sound = False

    def run(self, *args: Any, **kwargs: Any) -> np.ndarray:
        logits = super().run(*args, **kwargs)
        if not self.is_sound:
            logits[1:] = np.nan
        return logits


async def test_logits_that_are_not_finite_end_a_check_and_its_sequence() -> None:
    """What was said before them counts; the next sequence starts from nothing."""
    observer, decoder = RecordingObserver(), FailingDecoder(2, 160)
    async with engine_on(decoder, observer=observer) as engine:
        draft_eagerly(engine)
        request = request_of(PROMPTS[0], max_tokens=100)
        with pytest.raises(ModelFailed, match="not finite"):
            await ask_all(engine, request)
        decoder.is_sound = True
        await ask_all(engine, request_of(PROMPTS[0], max_tokens=100))
    assert [sequence.finish_reason for sequence in observer.ended] == [
        FinishReason.ERROR,
        FinishReason.LENGTH,
    ]
    assert observer.ended[0].num_output_tokens >= 2
    assert observer.ended[1].num_reused_tokens == 0


def test_the_length_of_a_draft_is_the_one_that_says_most_in_a_time() -> None:
    """With a rate of r the draft of n tokens says 1 + r + ... + r^n in the time of its run.

    A step costs 10, and runs of 3, 7, 15 and 31 drafted tokens what the case says.
    """
    cases: list[tuple[float, dict[int, float], int]] = [
        (0.9, {3: 11, 7: 12, 15: 13, 31: 14}, 31),  # hardly more for long ones: 9.7 in 14
        (0.9, {3: 11, 7: 12, 15: 13, 31: 18}, 15),  # 8.1 in 13 against 9.7 in 18
        (0.9, {3: 11, 7: 12, 15: 20, 31: 40}, 7),  # 5.7 in 12 against 8.1 in 20
        (0.5, {3: 11, 7: 12, 15: 13, 31: 14}, 3),  # 1.875 in 11 against 1.99 in 12
        (0.5, {3: 18, 7: 19, 15: 20, 31: 21}, 0),  # 1.875 in 18: not a tenth more than 1 in 10
        (0.1, {3: 11, 7: 12, 15: 13, 31: 14}, 0),  # 1.11 in 11
    ]
    for rate, costs, expected in cases:
        speculator = Speculator(31)
        for _ in range(500):
            speculator.stepped(1, STEP_COST)
        sequence = sequence_of(REPEATING, max_tokens=50)
        for length, cost in costs.items():  # measured on another sequence, which agreed
            other = Draft(sequence_of(REPEATING, max_tokens=50), np.zeros(length, np.int32))
            speculator.checked(other, length, 1, cost)
        sequence.drafts.add(round(10_000 * rate), 10_000, sequence.num_tokens)
        if rate < 1:  # what is tried counts the token that did not agree
            sequence.drafts.tried = 10_000
        draft = speculator.draft([sequence])
        assert (0 if draft is None else len(draft.token_ids)) == expected, (rate, costs)


def test_costs_follow_the_last_runs_and_none_of_them_at_once() -> None:
    """A step that took twice as long moves what steps are taken to cost by a fifth."""
    speculator = Speculator(3)
    for cost in (10.0, 20.0):
        speculator.stepped(1, cost)
        speculator.stepped(2, 3 * cost)
        draft = Draft(sequence_of(REPEATING, max_tokens=50), np.zeros(3, np.int32))
        speculator.checked(draft, 3, 1, 2 * cost)
    assert speculator._step_costs == pytest.approx({1: 12.0, 2: 36.0})
    assert speculator._check_costs == pytest.approx({4: 24.0})


@pytest.mark.parametrize(("num_agreed", "num_tried"), [(0, 1), (2, 3), (4, 4)])
def test_a_draft_is_tried_up_to_the_first_token_that_the_sequence_does_not_say(
    num_agreed: int, num_tried: int
) -> None:
    """Of 4 drafted; what comes after it was compared with nothing."""
    record = DraftRecord(num_tokens=10)
    record.add(num_agreed, num_drafted=4, num_tokens=10)
    tried, agreed = DRAFT_PRIOR
    assert record.rate(10) == pytest.approx((agreed + num_agreed) / (tried + num_tried))
