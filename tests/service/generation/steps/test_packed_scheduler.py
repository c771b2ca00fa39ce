"""What packed steps compute, and which blocks of a paged cache sequences share."""

from typing import Any

import numpy as np

from service.generation.cache.paged_cache import PagedCache
from service.generation.sequence import Sequence
from service.generation.steps.packed_scheduler import PackedPlan, PackedScheduler
from service.generation.steps.scheduler import SchedulerLimits
from tests.fakes.generation import sequence_of

SIZE = 4  # tokens of a block
MAX_TOKENS = 64


class Machine:
    """A scheduler over a cache of a few blocks; every token is computed, and `0` comes next."""

    def __init__(
        self, num_blocks: int = 32, max_rows: int = 4, *, can_reuse: bool = True, **limits: Any
    ) -> None:
        self.copies: list[tuple[int, int, int]] = []
        self.cache = PagedCache(
            num_blocks, SIZE, MAX_TOKENS, max_rows, self._copy, can_reuse=can_reuse
        )
        self.scheduler = PackedScheduler(
            SchedulerLimits(**{"max_running": max_rows, "max_prefill_tokens": 16} | limits),
            self.cache,
        )
        self.num_arrived = 0

    def add(self, *prompts: list[int], max_tokens: int = 8, namespace: str = "") -> list[Sequence]:
        added = []
        for prompt in prompts:
            self.num_arrived += 1
            request = {"max_tokens": max_tokens, "namespace": namespace}
            added.append(sequence_of(prompt, queued_s=float(self.num_arrived), **request))
            self.scheduler.add(added[-1])
        return added

    def step(self) -> dict[Sequence, int]:
        """The number of tokens that each sequence computed."""
        plan = self.scheduler.plan()
        if plan is None:
            return {}
        num_tokens = tokens_of(plan)
        self.scheduler.computed(plan)
        for sequence in plan.sequences:
            if not sequence.num_uncomputed_tokens:
                sequence.append(0)
                if not sequence.num_output_tokens_left:
                    self.scheduler.end(sequence)
        self.scheduler.check_integrity()
        return num_tokens

    def serve(self, prompt: list[int], max_tokens: int = 1) -> Sequence:
        """A sequence that has ended."""
        (sequence,) = self.add(prompt, max_tokens=max_tokens)
        while self.step():
            pass
        return sequence

    def _copy(self, source: int, target: int, num_tokens: int) -> None:
        self.copies.append((source, target, num_tokens))


def tokens_of(plan: PackedPlan) -> dict[Sequence, int]:
    return dict(zip(plan.sequences, map(len, plan.rows()), strict=True))


def letters(count: int, first: int = 1) -> list[int]:
    return list(range(first, first + count))


def test_prompts_and_steps_are_computed_in_one_run() -> None:
    """12 tokens of a prompt, then its next token beside as much of others as the budget lasts."""
    machine = Machine()
    (first,) = machine.add(letters(12))
    assert machine.step() == {first: 12}
    second, third = machine.add(letters(9, 50), letters(20, 100))
    assert machine.step() == {first: 1, second: 9, third: 7}
    assert machine.step() == {first: 1, second: 1, third: 13}
    assert machine.step() == {first: 1, second: 1, third: 1}


def test_a_prompt_like_an_ended_one_shares_its_full_blocks() -> None:
    """10 tokens are two blocks and a half. Of 8 tokens one is shared: the last is computed."""
    machine = Machine()
    machine.serve(letters(10))
    (longer,) = machine.add([*letters(10), 77])
    assert machine.step() == {longer: 3}
    assert longer.num_reused_tokens == 8
    (exact,) = machine.add(letters(8))
    assert machine.step() == {longer: 1, exact: 4}
    assert machine.cache.blocks(exact)[0] == machine.cache.blocks(longer)[0]
    assert not machine.copies


def test_prompts_of_other_namespaces_share_no_block_and_do_not_wait() -> None:
    machine = Machine(max_prefill_tokens=40)
    machine.serve(letters(10))
    (blue,) = machine.add([*letters(10), 70], namespace="blue")
    (red,) = machine.add([*letters(10), 80], namespace="red")
    assert machine.step() == {blue: 11, red: 11}
    (again,) = machine.add([*letters(10), 90], namespace="red")
    assert machine.step() == {blue: 1, red: 1, again: 3}


def test_a_block_is_the_same_only_after_the_same_beginning() -> None:
    machine = Machine()
    machine.serve([9, 9, 9, 9, *letters(4), 7])
    (other,) = machine.add([8, 8, 8, 8, *letters(4), 7])
    assert machine.step() == {other: 9}


def test_a_beginning_that_is_being_computed_is_waited_for() -> None:
    """The second of two prompts that begin alike computes its own end only, one step later."""
    machine = Machine(max_prefill_tokens=12)
    first, second = machine.add([*letters(10), 70], [*letters(10), 80])
    assert machine.step() == {first: 11}
    assert machine.step() == {first: 1, second: 3}
    assert second.num_reused_tokens == 8


def test_without_reuse_no_prompt_shares_or_waits() -> None:
    machine = Machine(can_reuse=False, max_prefill_tokens=40)
    machine.serve(letters(10))
    first, second = machine.add([*letters(10), 70], [*letters(10), 80])
    assert machine.step() == {first: 11, second: 11}
    assert machine.cache.num_idle_tokens == 0


def test_the_oldest_unused_blocks_are_taken_first() -> None:
    """6 blocks hold two ended prompts; a third of two blocks takes those of the older one."""
    machine = Machine(num_blocks=6, max_rows=1)
    machine.serve(letters(8, 10))
    machine.serve(letters(8, 20))
    machine.serve(letters(8, 30))
    machine.serve(letters(4, 90))
    assert machine.cache.num_idle_tokens == 6 * SIZE
    assert machine.cache.num_known_tokens(sequence_of([*letters(8, 10), 1])) < 8
    assert machine.cache.num_known_tokens(sequence_of([*letters(8, 20), 1])) == 8
    assert machine.cache.num_known_tokens(sequence_of([*letters(8, 30), 1])) == 8


def test_a_sequence_begins_when_the_blocks_of_its_longest_output_are_free() -> None:
    """4 + 8 tokens are 3 blocks; of 5 blocks the second sequence has to wait for the first's."""
    machine = Machine(num_blocks=5)
    first, second = machine.add(letters(4), letters(4, 50))
    for _ in range(8):
        assert set(machine.step()) == {first}
    assert machine.step() == {second: 4}
    assert machine.scheduler.num_waiting == 0


def test_a_sequence_may_need_every_block() -> None:
    """4 + 8 tokens are 3 blocks, and there are 3."""
    machine = Machine(num_blocks=3)
    (only,) = machine.add(letters(4))
    assert machine.step() == {only: 4}


def test_further_samples_share_the_prompt_and_copy_its_last_block() -> None:
    machine = Machine()
    (first,) = machine.add(letters(6))
    other = Sequence(first.request, first.sampler, first.text, 1, first)
    other.timings.queued_s = first.timings.queued_s
    machine.scheduler.add(other)
    assert machine.step() == {first: 6}
    assert machine.step() == {first: 1, other: 1}
    one, two = machine.cache.blocks(first), machine.cache.blocks(other)
    assert one[0] == two[0]
    assert machine.copies == [(one[1], two[1], 1)]


def test_drafts_leave_prompts_their_half() -> None:
    """A text that repeats itself has drafts; a prompt that comes has half of what steps leave."""
    machine = Machine(max_rows=2, max_prefill_tokens=16, max_draft_tokens=15)
    (first,) = machine.add([1, 2, 3, 4] * 4, max_tokens=40)
    assert machine.step() == {first: 16}
    first.token_ids[first.num_tokens - 1] = 1
    first.drafts.add(60, 60, first.num_tokens)
    (second,) = machine.add(letters(20, 100))
    plan = machine.scheduler.plan()
    assert plan is not None
    assert tokens_of(plan) == {first: 9, second: 8}
    assert plan.drafts[0].token_ids.tolist() == [2, 3, 4, 1, 2, 3, 4, 1]
    assert plan.inputs().logit_positions.tolist() == list(range(9))


def test_the_arrays_of_a_run() -> None:
    """A step of one sequence and a prompt's five tokens, in blocks of four."""
    machine = Machine()
    (first,) = machine.add(letters(4))
    machine.step()
    machine.add(letters(5, 50))
    plan = machine.scheduler.plan()
    assert plan is not None
    inputs = plan.inputs()
    assert inputs.input_ids.tolist() == [0, 50, 51, 52, 53, 54]
    assert inputs.position_ids.tolist() == [4, 0, 1, 2, 3, 4]
    assert inputs.cumulative_sequence_length.tolist() == [0, 1, 6]
    assert inputs.past_seqlens.tolist() == [4, 0]
    assert inputs.logit_positions.tolist() == [0, 5]
    assert inputs.block_table.shape == (2, 2)
    assert len(np.unique(inputs.block_table)) == 4
    assert inputs.block_table[0].tolist() == machine.cache.blocks(first)
    assert inputs.input_ids.dtype == inputs.position_ids.dtype == np.int64
    assert inputs.past_seqlens.dtype == inputs.block_table.dtype == np.int32


def test_blocks_count_as_taken_from_the_admission_to_the_end() -> None:
    """A prompt of 10 and an output of 8: 3 blocks, and 2 more promised; kept ones are free."""
    machine = Machine()
    machine.add(letters(10), max_tokens=8)
    assert (machine.cache.num_places, machine.cache.num_taken_places) == (32, 0)
    machine.step()
    assert machine.cache.num_used_blocks == 3
    assert machine.cache.num_taken_places == 5
    while machine.step():
        pass
    assert machine.cache.num_taken_places == 0


def test_blocks_in_use_by_another_are_not_needed_again() -> None:
    """Of 8 blocks one has 4 and is promised 2; another shares the 4, and takes the last 2."""
    machine = Machine(num_blocks=8)
    machine.add(letters(16), max_tokens=8)
    machine.step()
    assert machine.cache.num_taken_places == 6
    (other,) = machine.add([*letters(16), 99], max_tokens=7)
    assert other in machine.step()
    assert other.num_reused_tokens == 16
    assert machine.cache.num_taken_places == 8
