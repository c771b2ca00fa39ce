"""Decides the work of the next session run: which sequences, how many tokens of each.

Pure policy over the cache's accounting: no clock, thread, array of the session or metric. The
engine passes sequences in and runs what comes out, so any decision can be replayed in a test.

Decoding goes first. Between two decoding steps at most `max_prefill_tokens` of prompts are
computed, padding and the price of each run included, so that a long prompt delays running sequences
by one bounded step at a time, and neither side starves. ONNX Runtime's attention continues a past
for one row only, and starts several rows from nothing; hence the three kinds of step:

    decode    every decoding sequence, one token each; or one, its token and a draft after it
    prefill   several short prompts from their beginning, padded to the longest or packed
    chunk     a part of one prompt: it is too long for the budget, or its beginning was copied

Waiting sequences run in the order of arrival. Each priority level counts as a later arrival, so
that the lowest levels are late but never starve.
"""

from bisect import insort
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from service.generation.kv_cache import MIN_KEPT_TOKENS, KVCache
from service.generation.sequence import Sequence
from service.generation.speculation import Draft, Speculator

Phase = Literal["prefill", "decode"]
# Attention computes padding of packed prompts too: positions for each token of the budget.
MAX_PADDED = 4


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds of one model's steps."""

    max_running: int = 64  # sequences with a slot, also if the cache could hold more
    max_prefill_tokens: int = 256  # between two decoding steps
    overhead_tokens: int = 16  # what one more run costs, in tokens; decision 0018
    priority_step_s: float = 5.0  # how much later each priority counts as having come
    can_reuse_prefixes: bool = True
    pads_prompts: bool = True  # in a run of several each costs as much as the longest
    has_whole_prompts: bool = False  # computed in one run each, or copied from another sample
    max_candidates: int = 256  # waiting sequences looked at when a step is planned
    max_draft_tokens: int = 0  # of one sequence, checked in one run; 0: no drafts


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One forward pass; the sequences are in neighbouring slots, in their order."""

    phase: Phase
    sequences: tuple[Sequence, ...]
    num_new_tokens: tuple[int, ...]
    draft: Draft | None = None  # computed after the new token of a sequence that is alone

    @property
    def first_slot(self) -> int:
        slot = self.sequences[0].slot
        assert slot is not None, "a planned sequence has its slot"
        return slot

    @property
    def num_drafted(self) -> int:
        return 0 if self.draft is None else len(self.draft.token_ids)

    @property
    def num_tokens(self) -> int:
        return sum(self.num_new_tokens) + self.num_drafted

    def rows(self) -> list[np.ndarray]:
        """The ids to compute, int32, by sequence."""
        rows = [
            sequence.token_ids[sequence.num_computed_tokens :][:num_new]
            for sequence, num_new in zip(self.sequences, self.num_new_tokens, strict=True)
        ]
        return rows if self.draft is None else [np.append(rows[0], self.draft.token_ids)]


class Scheduler:
    """Waiting sequences in their order, the one in chunks, and (in the cache) those decoding."""

    def __init__(self, limits: SchedulerLimits, cache: KVCache) -> None:
        self._limits = limits
        self._cache = cache
        self._waiting: list[Sequence] = []  # sorted by _order
        self._in_chunks: Sequence | None = None
        self._budget_tokens = limits.max_prefill_tokens  # left until the next decoding step
        self._speculator = Speculator(limits.max_draft_tokens)
        self.max_running = min(limits.max_running, cache.num_slots)

    def __repr__(self) -> str:
        return f"<Scheduler {len(self._waiting)} waiting, {self._cache!r}>"

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_free(self) -> int:
        """Slots that sequences which come now may take."""
        return self._num_free()

    def first_waiting(self, count: int) -> list[Sequence]:
        return self._waiting[:count]

    def running(self) -> list[Sequence]:
        """Every sequence that has a slot between two steps."""
        return self._cache.decoding() + ([self._in_chunks] if self._in_chunks else [])

    def sequences(self) -> list[Sequence]:
        """Every sequence that has not ended."""
        return self.running() + self._waiting

    def add(self, sequence: Sequence) -> None:
        insort(self._waiting, sequence, key=self._order)

    def plan(self) -> StepPlan | None:
        """The plan of the next run; None without work.

        The caller runs the step and says `computed`, then `settle` for each of its sequences that
        goes on, or `end`.
        """
        plan = self._plan_prefill()
        if plan is not None:
            num_computed = self._num_computed(plan.num_new_tokens)
            self._budget_tokens -= num_computed + self._limits.overhead_tokens
            return plan
        decoding = self._cache.decoding()
        self._budget_tokens = self._limits.max_prefill_tokens
        draft = self._speculator.draft(decoding)
        if draft is not None:
            return StepPlan("decode", (draft.sequence,), (1,), draft)
        return StepPlan("decode", tuple(decoding), (1,) * len(decoding)) if decoding else None

    def computed(self, plan: StepPlan) -> None:
        """A plan's run succeeded."""
        for sequence, num_tokens in zip(plan.sequences, plan.num_new_tokens, strict=True):
            self._cache.advance(sequence, num_tokens)

    def ran(self, plan: StepPlan, run_s: float, num_agreed: int, num_decoding: int) -> None:
        """Note the duration of a plan's run, and how many tokens of its draft were accepted."""
        if plan.draft is not None:
            self._speculator.checked(plan.draft, num_agreed, num_decoding, run_s)
        elif plan.phase == "decode":
            self._speculator.stepped(len(plan.sequences), run_s)

    def agree(self, sequence: Sequence) -> None:
        """The token that a sequence just took is in its slot already, as drafted."""
        self._cache.advance(sequence, 1)

    def settle(self, sequence: Sequence) -> None:
        """After its step, where it has not ended: put the sequence where its next step finds it."""
        if sequence.num_uncomputed_tokens > 1:
            assert sequence is self._in_chunks, "only a chunk leaves more than one token"
        elif sequence.slot is not None and sequence.slot >= self._cache.num_decoding:
            self._start_decoding(sequence)

    def fork(self, source: Sequence, target: Sequence) -> None:
        """Between `computed` and `settle`: a beam goes on as another one, which has just run."""
        target.follow(source)
        self._cache.fork(source, target)

    def end(self, sequence: Sequence, *, is_sound: bool = True) -> None:
        """Forget a sequence, wherever it is; not sound: a failed run may have spoiled its slot."""
        if sequence.slot is None:
            self._waiting.remove(sequence)
            return
        if sequence is self._in_chunks:
            self._in_chunks = None
        self._cache.release(sequence, is_sound=is_sound)

    def check_integrity(self) -> None:
        """Recount between two steps; raises `AssertionError`."""
        keys = [self._order(sequence) for sequence in self._waiting]
        assert keys == sorted(keys), "the queue is out of order"
        assert all(sequence.slot is None for sequence in self._waiting), "a slot for one waiting"
        assert not any(sequence.is_finished for sequence in self.sequences()), "an ended one stays"
        self._cache.check_integrity(self.running())

    def _order(self, sequence: Sequence) -> tuple[float, int]:
        step_s = self._limits.priority_step_s
        came_s = sequence.timings.queued_s + sequence.request.priority * step_s
        return came_s, sequence.sample_index

    def _start_decoding(self, sequence: Sequence) -> None:
        if sequence is self._in_chunks:
            self._in_chunks = None
        self._cache.promote(sequence)

    def _plan_prefill(self) -> StepPlan | None:
        while self._in_chunks is None:
            sequence = next(self._candidates(), None)
            if sequence is None or sequence.num_slots > self._num_free():
                return None
            source, num_same = self._find_prefix(sequence)
            if num_same and not self._can_afford(0):
                return None
            if num_same:
                self._admit_with_prefix(sequence, source, num_same)
            elif sequence.num_tokens > self._limits.max_prefill_tokens:
                self._waiting.remove(sequence)
                self._cache.claim([sequence])
                self._in_chunks = sequence
            elif self._can_afford(sequence.num_tokens):
                return self._start_several(sequence)
            else:
                return None
        # Chunks have one size, independent of other requests, and so have their roundings.
        num_tokens = min(self._in_chunks.num_uncomputed_tokens, self._limits.max_prefill_tokens)
        if not self._can_afford(num_tokens):
            return None
        return StepPlan("prefill", (self._in_chunks,), (num_tokens,))

    def _can_afford(self, num_tokens: int) -> bool:
        """Whether a run of this number of tokens may precede the next decoding step."""
        is_fresh = self._budget_tokens == self._limits.max_prefill_tokens
        return is_fresh or not self._cache.num_decoding or num_tokens < self._budget_tokens

    def _num_free(self) -> int:
        """Slots for those that wait: a search keeps as many as it may ever have beams."""
        running = self.running()
        searches = {s.request for s in running if s.request.params.has_beams}
        num_alone = sum(not s.request.params.has_beams for s in running)
        num_kept = sum(request.params.beam_width for request in searches)
        return self.max_running - num_alone - num_kept

    def _candidates(self) -> Iterator[Sequence]:
        """Waiting sequences in order, without those that wait for their leader's prefill."""
        for sequence in islice(self._waiting, self._limits.max_candidates):
            leader = sequence.leader
            if leader is None or leader.is_finished or not leader.num_prompt_tokens_left:
                yield sequence

    def _find_prefix(self, sequence: Sequence) -> tuple[int, int]:
        """The slot to copy from, and how many tokens; 0 where there is nothing worth it."""
        if self._limits.has_whole_prompts:
            return self._find_sample(sequence)
        if sequence.leader is None and not self._limits.can_reuse_prefixes:
            return 0, 0
        source, num_same = self._cache.find_prefix(sequence.token_ids[: sequence.num_tokens - 1])
        least = MIN_KEPT_TOKENS if sequence.leader is None else 1
        return source, num_same if num_same >= least else 0

    def _find_sample(self, sequence: Sequence) -> tuple[int, int]:
        """The slot of another sample, which has the whole prompt; its last token is left."""
        for other in self._cache.decoding() if sequence.leader else ():
            if other.request is sequence.request and other.slot is not None:
                return other.slot, sequence.num_tokens - 1
        return 0, 0

    def _admit_with_prefix(self, sequence: Sequence, source: int, num_same: int) -> None:
        self._waiting.remove(sequence)
        self._cache.claim_with_prefix(sequence, source, num_same)
        self._budget_tokens -= self._limits.overhead_tokens  # copying takes its time too
        if sequence.num_uncomputed_tokens == 1:
            self._start_decoding(sequence)
        else:
            self._in_chunks = sequence

    def _start_several(self, first: Sequence) -> StepPlan:
        """Prompts from their beginning: the oldest, and those that cost less with it than alone."""
        chosen = [first]
        num_free = self._num_free() - first.num_slots
        for sequence in self._candidates():
            if sequence is first:
                continue
            if sequence.num_slots > num_free:
                break
            if self._fits(chosen, sequence):
                chosen.append(sequence)
                num_free -= sequence.num_slots
        for sequence in chosen:
            self._waiting.remove(sequence)
        self._cache.claim(chosen)
        lengths = tuple(sequence.num_tokens for sequence in chosen)
        return StepPlan("prefill", tuple(chosen), lengths)

    def _num_computed(self, lengths: Many[int]) -> int:
        """Tokens that a run of prompts computes, padding included where the graph has it."""
        return len(lengths) * max(lengths) if self._limits.pads_prompts else sum(lengths)

    def _fits(self, chosen: list[Sequence], sequence: Sequence) -> bool:
        lengths = [other.num_tokens for other in chosen]
        num_computed = self._num_computed([*lengths, sequence.num_tokens])
        added = num_computed - self._num_computed(lengths)
        if not self._can_afford(num_computed) or num_computed > self._limits.max_prefill_tokens:
            return False
        if added - sequence.num_tokens > self._limits.overhead_tokens:
            return False
        num_positions = (len(chosen) + 1) * max(*lengths, sequence.num_tokens)
        if num_positions > MAX_PADDED * self._limits.max_prefill_tokens:
            return False
        # What could be copied once it is computed is worth waiting for; so is what is there now.
        if any(_num_same(other, sequence) >= MIN_KEPT_TOKENS for other in chosen):
            return not self._limits.can_reuse_prefixes
        return not self._find_prefix(sequence)[1]


def _num_same(one: Sequence, other: Sequence) -> int:
    """The number of equal tokens at the beginning of two prompts."""
    count = min(one.num_tokens, other.num_tokens)
    is_same = one.token_ids[:count] == other.token_ids[:count]
    return count if is_same.all() else int(np.argmin(is_same))
