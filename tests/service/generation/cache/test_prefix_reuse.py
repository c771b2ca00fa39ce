"""Prompts that begin alike over a few slots: what a store gives back, and what salts keep apart.

A prompt of one repeated letter is told from every other by its first token.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from service.generation.cache.prefix_store import PIECE_TOKENS
from service.generation.sequence import Sequence
from service.generation.steps.scheduler import SchedulerLimits
from tests.fakes.generation import Steps, output_ids, request_of, samples_of, sequence_of
from tests.fakes.sessions import greedy_ids

LONG = 2 * PIECE_TOKENS + 5
ARRIVALS: Iterator[int] = count()


def steps_of(num_slots: int = 2, num_pieces: int = 8, **limits: object) -> Steps:
    chosen = SchedulerLimits(max_prefix_bytes=num_pieces * PIECE_TOKENS, **limits)  # type: ignore[arg-type]
    return Steps(num_slots, 128, chosen)


def serve(steps: Steps, prompt: str, namespace: str = "", max_tokens: int = 3) -> Sequence:
    """A sequence that has ended with the tokens that it gets alone."""
    queued_s = float(next(ARRIVALS))
    sequence = sequence_of(prompt, queued_s=queued_s, max_tokens=max_tokens, namespace=namespace)
    steps.add(sequence)
    steps.drain()
    assert output_ids(sequence) == greedy_ids(prompt.encode(), max_tokens)
    return sequence


def take_every_slot(steps: Steps) -> None:
    for letter in "pqrstuvwxy"[: steps.num_slots]:
        serve(steps, letter * 20)


def test_a_beginning_whose_slot_was_taken_comes_from_the_store() -> None:
    """Whole pieces of it: 64 of its 69 tokens, and the end of each prompt is computed."""
    steps = steps_of()
    first = serve(steps, "a" * LONG)
    take_every_slot(steps)
    again = serve(steps, "a" * LONG + "b")
    assert (first.num_reused_tokens, again.num_reused_tokens) == (0, 2 * PIECE_TOKENS)
    assert again.num_stored_tokens == 2 * PIECE_TOKENS
    assert steps.cache.num_stored_bytes >= 2 * PIECE_TOKENS


def test_a_beginning_that_is_still_in_its_slot_is_copied_from_there() -> None:
    """All that is the same, and nothing of the store, which has less of it."""
    steps = steps_of()
    serve(steps, "a" * LONG)
    again = serve(steps, "a" * LONG + "b")
    assert (again.num_reused_tokens, again.num_stored_tokens) == (LONG, 0)
    assert steps.cache.num_stored_bytes == 0


def test_the_longer_one_of_slot_and_store_is_taken() -> None:
    steps = steps_of()
    serve(steps, "a" * LONG)
    take_every_slot(steps)
    serve(steps, "a" * 20 + "c" * 20)
    again = serve(steps, "a" * LONG)
    assert (again.num_reused_tokens, again.num_stored_tokens) == (2 * PIECE_TOKENS,) * 2


def test_what_a_reused_slot_loses_is_kept() -> None:
    """One slot: a prompt goes on in the slot that it copies from, which had more."""
    steps = steps_of(num_slots=1)
    serve(steps, "a" * 40 + "b" * 40)
    serve(steps, "a" * 40 + "c")
    again = serve(steps, "a" * 40 + "b" * 40)
    assert again.num_stored_tokens == 2 * PIECE_TOKENS


def test_the_last_token_is_computed_where_the_store_has_it() -> None:
    """For its logits: of two whole pieces one is copied."""
    steps = steps_of()
    serve(steps, "a" * 2 * PIECE_TOKENS)
    take_every_slot(steps)
    assert serve(steps, "a" * 2 * PIECE_TOKENS).num_reused_tokens == PIECE_TOKENS


def test_making_room_may_cost_what_was_found() -> None:
    """Two places: what the taken slot has pushes out one piece of two, and the rest is used."""
    steps = steps_of(num_slots=1, num_pieces=2)
    serve(steps, "a" * LONG)
    serve(steps, "b" * (PIECE_TOKENS + 3))
    again = serve(steps, "a" * LONG)
    assert again.num_reused_tokens == PIECE_TOKENS


def test_samples_of_a_stored_prompt_copy_their_first() -> None:
    steps = steps_of(num_slots=4)
    prompt = "a" * LONG
    serve(steps, prompt)
    take_every_slot(steps)
    samples = samples_of(request_of(prompt, max_tokens=3), 3, float(next(ARRIVALS)))
    steps.add(*samples)
    steps.drain()
    assert [s.num_reused_tokens for s in samples] == [2 * PIECE_TOKENS, LONG - 1, LONG - 1]


def test_a_prompt_that_is_scored_is_computed_whole() -> None:
    steps = steps_of(max_scored_tokens=8)
    serve(steps, "a" * LONG)
    take_every_slot(steps)
    scored = sequence_of("a" * LONG, max_tokens=1, prompt_logprobs=0)
    steps.add(scored)
    steps.drain()
    assert scored.num_reused_tokens == 0
    assert len(scored.prompt_logprobs) == LONG - 1


@pytest.mark.parametrize("is_taken", [False, True], ids=["in its slot", "in the store"])
def test_prompts_of_other_namespaces_share_nothing(is_taken: bool) -> None:
    steps = steps_of(num_slots=3)
    serve(steps, "a" * LONG, "blue")
    if is_taken:
        take_every_slot(steps)
    assert serve(steps, "a" * LONG).num_reused_tokens == 0
    assert serve(steps, "a" * LONG, "red").num_reused_tokens == 0
    assert serve(steps, "a" * LONG, "blue").num_reused_tokens >= 2 * PIECE_TOKENS


def test_prompts_of_other_namespaces_do_not_wait_for_each_other() -> None:
    """Together in one run, where those of one namespace would be computed one after the other."""
    steps = steps_of(num_slots=4)
    near, far = ([sequence_of("a" * 30, namespace=n) for n in each] for each in ("bb", "cd"))
    for sequences, num_rows in ((near, 1), (far, 2)):
        steps.add(*sequences)
        step = steps.step()
        assert step is not None
        assert len(step.sequences) == num_rows
        steps.drain()


def test_without_a_store_nothing_outlasts_its_slot() -> None:
    steps = steps_of(num_pieces=0)
    serve(steps, "a" * LONG)
    take_every_slot(steps)
    assert serve(steps, "a" * LONG).num_reused_tokens == 0
