"""The sequences and tokens of the next step: scheduler and cache, step by step, no clock.

Where nothing else is said: 8 slots, 32 tokens of prompts between two decoding steps, and a run
costs as much as 4 tokens. Every step is checked by `Steps`.
"""

from typing import Any

import numpy as np
import pytest

from service.generation.sequence import Sequence
from service.generation.steps.scheduler import SchedulerLimits, StepPlan
from service.records import FinishReason
from tests.fakes.generation import Step, Steps, output_ids, request_of, samples_of, sequence_of
from tests.fakes.sessions import greedy_ids

MAX_TOKENS = 400
CHUNK = 32


def steps_of(*sequences: Sequence, num_slots: int = 8, **limits: Any) -> Steps:
    values = {"max_prefill_tokens": CHUNK, "overhead_tokens": 4} | limits
    steps = Steps(num_slots, MAX_TOKENS, SchedulerLimits(**values))
    steps.add(*sequences)
    return steps


def shapes(steps: list[Step]) -> list[tuple[str, tuple[int, ...]]]:
    """Of each step, the phase and the tokens by row."""
    return [(step.plan.phase, step.plan.num_new_tokens) for step in steps]


def num_padded(plan: StepPlan) -> int:
    """B * S: what is computed, padding included."""
    return len(plan.sequences) * max(plan.num_new_tokens)


def prefills_of(steps: list[Step], sequence: Sequence) -> list[int]:
    """How many tokens of a sequence each prefill computed."""
    return [
        num_tokens
        for step in steps
        if step.plan.phase == "prefill"
        for owner, num_tokens in zip(step.sequences, step.plan.num_new_tokens, strict=True)
        if owner is sequence
    ]


def different(number: int, length: int) -> list[int]:
    """A prompt whose first token no other number's has; up to 255 there are."""
    return [number, *(place % 64 for place in range(length - 1))]


def same(number: int, length: int) -> list[int]:
    """A prompt that begins like every other with 20 tokens, and goes on by itself."""
    return [*b"s" * 20, *different(number, length - 20)]


def test_nothing_waits_and_nothing_is_planned() -> None:
    steps = steps_of()
    assert steps.step() is None
    assert repr(steps.scheduler) == (
        "<SlotScheduler 0 waiting, <KVCache 8 slots: 0 decode, 0 in prefill, 0 tokens>>"
    )


def test_drafts_begin_when_a_decoding_step_was_measured() -> None:
    """A prefill tells nothing of what a step costs."""
    sequence = sequence_of([1, 2, 3, 4] * 4, max_tokens=40)
    steps = steps_of(sequence, max_draft_tokens=3)
    prefill = steps.step()
    assert prefill is not None
    sequence.token_ids[sequence.num_tokens - 1] = 1  # as the text goes on
    steps.scheduler.ran(prefill.plan, 1.0, {})
    plan = steps.scheduler.plan()
    assert plan is not None
    assert not plan.drafts
    steps.scheduler.ran(plan, 1.0, {})
    plan = steps.scheduler.plan()
    assert plan is not None
    assert [draft.token_ids.tolist() for draft in plan.drafts] == [[2, 3, 4]]


def test_a_prompt_is_computed_once_and_every_token_after_it_alone() -> None:
    """5 tokens, then 3 steps of one: the last of the 4 chosen is never computed."""
    sequence = sequence_of("hello", max_tokens=4)
    steps = steps_of(sequence)
    assert shapes(steps.drain()) == [("prefill", (5,)), *[("decode", (1,))] * 3]
    assert output_ids(sequence) == greedy_ids(b"hello", 4)
    assert sequence.finish_reason is FinishReason.LENGTH


def test_all_that_decode_go_in_one_step() -> None:
    sequences = [sequence_of(different(number, 5), max_tokens=3) for number in range(6)]
    steps = steps_of(*sequences)
    assert shapes(steps.drain())[1:] == [("decode", (1,) * 6)] * 2


def test_a_long_prompt_delays_running_sequences_by_one_chunk_at_a_time() -> None:
    """100 tokens go as 32, 32, 32 and 4, and a token for the running one between any two."""
    steps = steps_of(sequence_of("a", max_tokens=20))
    steps.step()
    steps.add(sequence_of(different(1, 100), max_tokens=1))
    found = shapes([step for _ in range(8) if (step := steps.step())])
    chunks = [("prefill", (size,)) for size in (32, 32, 32, 4)]
    # What the first prompt left of the budget is too little for a chunk.
    assert found == [(phase, row) for chunk in chunks for phase, row in (("decode", (1,)), chunk)]


def test_a_new_prompt_is_computed_before_the_next_token_of_others() -> None:
    """While what came since the last decoding step leaves room for it."""
    steps = steps_of(sequence_of("a", max_tokens=20))
    steps.step()
    steps.step()
    steps.add(sequence_of(different(1, 10)))
    assert shapes(steps.drain())[:2] == [("prefill", (10,)), ("decode", (1, 1))]


@pytest.mark.parametrize("can_reuse_prefixes", [True, False])
def test_prompts_between_two_decoding_steps_are_bounded(can_reuse_prefixes: bool) -> None:
    """50 seeds: 36 at most while anyone decodes, which is 32 tokens, padded, and one more run."""
    num_bounded = 0
    for seed in range(50):
        random = np.random.default_rng(seed)
        steps = steps_of(can_reuse_prefixes=can_reuse_prefixes)
        spent = 0
        for number in range(60):
            for _ in range(random.poisson(0.5)):
                make = same if random.random() < 0.5 else different
                prompt = make(number, int(random.choice([21, 25, 40, 120])))
                steps.add(
                    sequence_of(prompt, queued_s=number, max_tokens=int(random.integers(1, 20)))
                )
            step = steps.step()
            if step is None or step.plan.phase == "decode":
                spent = 0
            elif step.num_decoding:
                # A copy costs as much as a run.
                spent += num_padded(step.plan) + 4 * (1 + step.num_copied)
                assert spent <= CHUNK + 4
                num_bounded += 1
    assert num_bounded > 300


def test_copied_prompts_are_paid_for_too() -> None:
    """20 that are wholly there: at 8 of 32 tokens each, 4 start between two decoding steps."""
    prompt = different(0, 21)
    steps = steps_of(sequence_of(prompt, max_tokens=100), overhead_tokens=8, num_slots=32)
    steps.step()
    steps.step()
    steps.add(*(sequence_of(prompt, max_tokens=100) for _ in range(20)))
    found = [step for _ in range(6) if (step := steps.step())]
    assert shapes(found) == [("decode", (1,) * rows) for rows in (5, 9, 13, 17, 21, 21)]


def test_short_prompts_share_a_run() -> None:
    """5 of 6 tokens: 30 of 32."""
    steps = steps_of(*(sequence_of(different(number, 6)) for number in range(5)))
    assert shapes(steps.drain())[0] == ("prefill", (6,) * 5)


def test_padding_is_paid_for() -> None:
    """5 of 6 tokens and one of 7 would make 42 of 32: the seventh waits, and so does a sixth."""
    steps = steps_of(
        *(sequence_of(different(number, 6)) for number in range(4)),
        sequence_of(different(9, 7)),
        sequence_of(different(10, 6)),
    )
    assert shapes(steps.drain())[0] == ("prefill", (6, 6, 6, 6, 6))


@pytest.mark.parametrize(("overhead_tokens", "is_shared"), [(11, False), (12, True)])
def test_padding_never_costs_more_than_a_run(overhead_tokens: int, is_shared: bool) -> None:
    """4 and 16 tokens pay 32 together, 20 alone: worth it where a run costs 12."""
    sequences = sequence_of(different(0, 4)), sequence_of(different(1, 16))
    steps = steps_of(*sequences, overhead_tokens=overhead_tokens)
    assert shapes(steps.drain())[0] == ("prefill", (4, 16) if is_shared else (4,))


def test_packed_prompts_share_a_run_whatever_their_lengths() -> None:
    """Of 20, 4, 8 and 2 tokens the first three make 32 of 32; padded, the first would be alone."""
    sequences = [sequence_of(different(number, n)) for number, n in enumerate((20, 4, 8, 2))]
    steps = steps_of(*sequences, pads_prompts=False, overhead_tokens=0)
    assert shapes(steps.drain())[0] == ("prefill", (20, 4, 8))
    again = [sequence_of(different(number, n)) for number, n in enumerate((20, 4, 8, 2))]
    padded = steps_of(*again, overhead_tokens=0)
    assert shapes(padded.drain())[0] == ("prefill", (20,))


def test_padding_of_packed_prompts_is_bounded_too() -> None:
    """26 and four of 1 would be 130 positions to attention, more than 4 times the 32 tokens."""
    sequences = [sequence_of(different(number, n)) for number, n in enumerate((26, 1, 1, 1, 1))]
    steps = steps_of(*sequences, pads_prompts=False, overhead_tokens=0)
    assert shapes(steps.drain())[0] == ("prefill", (26, 1, 1, 1))
    sequences = [sequence_of(different(number, n)) for number, n in enumerate((16, *[1] * 8))]
    steps = steps_of(*sequences, pads_prompts=False, overhead_tokens=0)
    assert shapes(steps.drain())[0] == ("prefill", (16, *[1] * 7)), "8 of 16 are the 128 exactly"


def test_packed_prompts_are_bounded_between_two_decoding_steps() -> None:
    """Beside one that decodes 20 and 6 go; 8 more would make 34, and wait for the next step."""
    steps = steps_of(sequence_of(different(0, 5), max_tokens=50), pads_prompts=False)
    steps.step()
    steps.step()
    steps.add(*(sequence_of(different(9 + n, n), max_tokens=50) for n in (20, 6, 8)))
    found = [step for _ in range(3) if (step := steps.step())]
    assert shapes(found) == [("prefill", (20, 6)), ("decode", (1,) * 3), ("prefill", (8,))]


def test_chunks_are_of_one_size_beside_any_other_requests() -> None:
    """A prompt of 100 in 30 random crowds: always 32, 32, 32, 4, so that rounding is the same."""
    for seed in range(30):
        random = np.random.default_rng(seed)
        steps = steps_of(num_slots=4)
        number = 0
        for _ in range(seed):
            for _ in range(random.poisson(1.0)):
                number += 1
                prompt = different(number, int(random.integers(3, 60)))
                steps.add(sequence_of(prompt, queued_s=number))
            steps.step()
        long = sequence_of(different(255, 100), queued_s=number)
        steps.add(long)
        steps.drain()
        assert prefills_of(steps.steps, long) == [32, 32, 32, 4]


def test_a_prompt_s_last_token_may_be_computed_as_if_it_were_decoded() -> None:
    """33 tokens: a chunk of 32, then one that is a decoding step like any other's."""
    sequence = sequence_of(different(0, 33), max_tokens=2)
    steps = steps_of(sequence)
    assert shapes(steps.drain()) == [("prefill", (32,)), ("decode", (1,)), ("decode", (1,))]
    assert output_ids(sequence) == greedy_ids(different(0, 33), 2)


def test_one_slot_serves_in_the_order_of_arrival() -> None:
    """Long and short, put in out of order: each starts when all before it have ended."""
    random = np.random.default_rng(0)
    sequences = [
        sequence_of(different(number, int(random.integers(3, 90))), queued_s=number)
        for number in range(20)
    ]
    steps = steps_of(*random.permutation(np.array(sequences, object)), num_slots=1)
    started = dict.fromkeys(sequence for step in steps.drain() for sequence in step.sequences)
    assert list(started) == sequences


def test_those_that_came_at_once_go_in_the_order_they_were_put() -> None:
    sequences = [sequence_of(different(number, 5)) for number in range(10)]
    steps = steps_of(*sequences, num_slots=1)
    started = dict.fromkeys(sequence for step in steps.drain() for sequence in step.sequences)
    assert list(started) == sequences


def test_a_priority_counts_as_having_come_later() -> None:
    """One of priority 1 that came at 10 goes after an arrival at 14, before one at 16."""
    sequences = [
        sequence_of(different(number, 5), queued_s=queued_s, priority=priority)
        for number, (queued_s, priority) in enumerate([(10, 1), (14, 0), (16, 0), (5, 3)])
    ]
    steps = steps_of(*sequences, num_slots=1, priority_step_s=5.0)
    started = list(dict.fromkeys(step.sequences[0] for step in steps.drain()))
    assert [sequences.index(sequence) for sequence in started] == [1, 0, 2, 3]


def test_the_last_priority_is_never_forgotten() -> None:
    """It counts as 20 s late: of a rival per second, each its slot's only user, it lets 20 pass."""
    last = sequence_of("z", priority=4)
    steps = steps_of(num_slots=1, priority_step_s=5.0)
    for second in range(60):
        steps.add(sequence_of(different(second, 4), queued_s=second, max_tokens=2))
        if second == 0:
            steps.add(last)
        steps.step()
        steps.step()
        if last.num_computed_tokens:
            break
    assert second in (20, 21)


def test_samples_share_the_prefill_of_the_first() -> None:
    """Six samples of a prompt of 100: it is computed once, and its last token once each."""
    samples = samples_of(request_of(different(0, 100), max_tokens=3), 6, queued_s=0.0)
    steps = steps_of(*samples)
    found = steps.drain()
    assert [s.num_reused_tokens for s in samples] == [0, 99, 99, 99, 99, 99]
    assert sum(step.plan.num_tokens for step in found if step.plan.phase == "prefill") == 100
    for sample in samples:
        assert output_ids(sample) == greedy_ids(different(0, 100), 3)


def test_others_are_served_while_samples_wait_for_their_first() -> None:
    """A prompt of 5 is not stopped by 3 samples of 30 before it."""
    samples = samples_of(request_of(different(0, 30)), 4, queued_s=0.0)
    other = sequence_of(different(1, 28), queued_s=1.0)
    steps = steps_of(*samples, other, max_prefill_tokens=64)
    step = steps.step()
    assert step is not None
    assert step.sequences == (samples[0], other)


@pytest.mark.parametrize("prompt", [b"a", b"ab"])
def test_samples_of_the_shortest_prompts_are_computed(prompt: bytes) -> None:
    """Of one token there is nothing to copy, of two it is one."""
    samples = samples_of(request_of(prompt, max_tokens=5), 4, queued_s=0.0)
    steps = steps_of(*samples)
    steps.drain()
    assert [sample.num_reused_tokens for sample in samples[1:]] == [len(prompt) - 1] * 3
    assert {tuple(output_ids(sample)) for sample in samples} == {tuple(greedy_ids(prompt, 5))}


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
def test_samples_go_on_without_their_first(num_steps: int) -> None:
    """It ends in the queue, between chunks, at its last chunk, or while it decodes."""
    samples = samples_of(request_of(different(0, 70), max_tokens=4), 3, queued_s=0.0)
    steps = steps_of(*samples)
    for _ in range(num_steps):
        steps.step()
    steps.abort(samples[0])
    steps.drain()
    for sample in samples[1:]:
        assert output_ids(sample) == greedy_ids(different(0, 70), 4)
    assert samples[2].num_reused_tokens == 69


def test_samples_whose_first_ends_at_once_still_copy_it() -> None:
    """One token of output: the first has ended when the others start."""
    samples = samples_of(request_of(different(0, 70), max_tokens=1), 3, queued_s=0.0)
    steps_of(*samples).drain()
    assert [sample.num_reused_tokens for sample in samples] == [0, 69, 69]


def test_prompts_that_begin_alike_wait_for_the_one_being_computed() -> None:
    """Four of 25 with 20 in common: 25 tokens, then 5 each, and never 100."""
    sequences = [sequence_of(same(number, 25), max_tokens=2) for number in range(4)]
    steps = steps_of(*sequences, max_prefill_tokens=200)
    found = [s for s in steps.drain() if s.plan.phase == "prefill"]
    assert shapes(found) == [("prefill", (25,)), *[("prefill", (5,))] * 3]
    assert [sequence.num_reused_tokens for sequence in sequences] == [0, 20, 20, 20]


def test_a_kept_beginning_is_copied_after_its_owner_ended() -> None:
    """A second turn: the first's prompt and output, but for the last token, and 9 more."""
    first = sequence_of(different(0, 30), max_tokens=6)
    steps = steps_of(first)
    steps.drain()
    more = [*different(0, 30), *output_ids(first), *different(5, 9)]
    second = sequence_of(more, max_tokens=6)
    steps.add(second)
    assert shapes(steps.drain())[0] == ("prefill", (10,))
    assert output_ids(second) == greedy_ids(more, 6)


def test_a_copied_beginning_leaves_the_rest_to_chunks() -> None:
    """80 tokens, 20 of them there: 32 and 28."""
    steps = steps_of(sequence_of(same(0, 25), max_tokens=1))
    steps.drain()
    long = sequence_of(same(1, 80), max_tokens=1)
    steps.add(long)
    assert shapes(steps.drain()) == [("prefill", (32,)), ("prefill", (28,))]


def test_a_prompt_whose_beginning_is_kept_joins_no_run_of_whole_prompts() -> None:
    """Beside one of 5, it would be computed whole: 25 tokens, 20 of them there."""
    steps = steps_of(sequence_of(same(0, 25), max_tokens=1), max_prefill_tokens=200)
    steps.drain()
    steps.add(sequence_of(different(1, 21)), sequence_of(same(1, 25)))
    assert shapes(steps.drain())[:2] == [("prefill", (21,)), ("prefill", (5,))]


def test_without_reuse_prompts_that_begin_alike_are_computed_together() -> None:
    """Four of 25 with 20 in common: one run of 100. One that comes later copies nothing either."""
    sequences = [sequence_of(same(number, 25), max_tokens=2) for number in range(4)]
    steps = steps_of(*sequences, max_prefill_tokens=200, can_reuse_prefixes=False)
    assert shapes(steps.drain())[0] == ("prefill", (25,) * 4)
    steps.add(sequence_of(same(9, 25)))
    assert shapes(steps.drain())[0] == ("prefill", (25,))


def test_without_reuse_samples_still_share_their_prefill() -> None:
    samples = samples_of(request_of(different(0, 30), max_tokens=2), 3, queued_s=0.0)
    steps_of(*samples, can_reuse_prefixes=False).drain()
    assert [sample.num_reused_tokens for sample in samples] == [0, 29, 29]


def test_no_more_run_than_the_limit_allows() -> None:
    """8 slots, 3 at a time."""
    steps = steps_of(
        *(sequence_of(different(number, 4), max_tokens=5) for number in range(10)), max_running=3
    )
    assert max(len(step.sequences) for step in steps.drain()) == 3


def test_only_the_oldest_candidates_are_looked_at() -> None:
    """Of 6 that would share a run, 4 are candidates."""
    steps = steps_of(*(sequence_of(different(number, 4)) for number in range(6)), max_candidates=4)
    assert shapes(steps.drain())[0] == ("prefill", (4,) * 4)


def test_samples_beyond_the_candidates_do_not_hide_their_first() -> None:
    """10 samples, 4 candidates, of which 3 wait for the first: it goes, then they do."""
    samples = samples_of(request_of(different(0, 30), max_tokens=2), 10, queued_s=0.0)
    steps_of(*samples, max_candidates=4).drain()
    assert all(sample.num_reused_tokens == 29 for sample in samples[1:])


def test_one_that_leaves_the_queue_never_runs() -> None:
    waiting = sequence_of(different(1, 5), queued_s=1.0)
    steps = steps_of(sequence_of(different(0, 5)), waiting, num_slots=1)
    steps.step()
    steps.abort(waiting)
    assert steps.scheduler.num_waiting == 0
    assert not any(waiting in step.sequences for step in steps.drain())


def test_one_that_leaves_between_its_chunks_frees_its_slot_at_once() -> None:
    """And the next prompt starts in the step after."""
    long, other = sequence_of(different(0, 100)), sequence_of(different(1, 5), queued_s=1.0)
    steps = steps_of(long, other, num_slots=1)
    steps.step()
    assert steps.scheduler.running() == [long]
    steps.abort(long)
    assert steps.cache.num_used == 0
    assert shapes(steps.drain())[0] == ("prefill", (5,))
    assert output_ids(other) == greedy_ids(different(1, 5), 8)


def test_one_that_leaves_before_its_first_chunk_frees_its_slot_at_once() -> None:
    """It has its slot, and the step under way is another's."""
    steps = steps_of(sequence_of("a", max_tokens=20))
    steps.step()
    long = sequence_of(different(0, 100))
    steps.add(long)
    steps.step()
    assert (long.slot, long.num_computed_tokens) == (1, 0)
    steps.abort(long)
    assert steps.cache.num_used == 1
    steps.drain()


@pytest.mark.parametrize("place", range(4))
def test_one_that_leaves_while_it_decodes_does_not_disturb_the_others(place: int) -> None:
    prompts = [different(number, 6) for number in range(4)]
    sequences = [sequence_of(prompt, max_tokens=9) for prompt in prompts]
    steps = steps_of(*sequences)
    for _ in range(4):
        steps.step()
    steps.abort(sequences[place])
    assert steps.cache.num_decoding == 3
    steps.drain()
    for index in {*range(4)} - {place}:
        assert output_ids(sequences[index]) == greedy_ids(prompts[index], 9)


def test_what_a_failed_step_computed_is_not_copied() -> None:
    """A prompt of 30 fails; the same once more is computed from its beginning."""
    steps = steps_of(sequence_of(different(0, 30)))
    steps.step(fails=True)
    again = sequence_of(different(0, 30))
    steps.add(again)
    steps.drain()
    assert again.num_reused_tokens == 0
    assert output_ids(again) == greedy_ids(different(0, 30), 8)


def test_a_failed_chunk_takes_none_of_those_that_decode() -> None:
    decoding, long = sequence_of("a", max_tokens=20), sequence_of(different(0, 100))
    steps = steps_of(decoding)
    steps.step()
    steps.add(long)
    steps.step()
    step = steps.step(fails=True)
    assert step is not None
    assert step.sequences == (long,)
    steps.drain()
    assert output_ids(decoding) == greedy_ids(b"a", 20)


def test_the_check_of_integrity_notices_a_queue_out_of_order() -> None:
    steps = steps_of(*(sequence_of("a", queued_s=second) for second in range(3)))
    steps.scheduler._waiting.reverse()
    with pytest.raises(AssertionError, match="out of order"):
        steps.scheduler.check_integrity()


def test_the_check_of_integrity_notices_one_that_ended_and_waits() -> None:
    sequence = sequence_of("a")
    steps = steps_of(sequence)
    sequence.finish_reason = FinishReason.ABORT
    with pytest.raises(AssertionError, match="an ended one stays"):
        steps.scheduler.check_integrity()
