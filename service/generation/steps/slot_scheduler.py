"""Decides the work of the next run over slots: which sequences, how many tokens of each.

Decoding goes first. Between two decoding steps at most `max_prefill_tokens` of prompts are
computed, padding and the price of each run included, so that a long prompt delays running sequences
by one bounded step at a time, and neither side starves. ONNX Runtime's attention continues a past
for one row only, and starts several rows from nothing; hence the three kinds of step:

    decode    every decoding sequence, one token each; or one, its token and a draft after it
    prefill   several short prompts from their beginning, padded to the longest or packed
    chunk     a part of one prompt: it is too long for the budget, or its beginning was copied, or
              it is scored, for which a run gives the logits of a bounded number of tokens
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import numpy as np

from service.generation.adapter_places import AdapterPlaces
from service.generation.cache.kv_cache import MIN_KEPT_TOKENS, KVCache
from service.generation.cache.prefix_store import PIECE_TOKENS
from service.generation.choosing.step_logits import StepLogits
from service.generation.sequence import Sequence
from service.generation.steps.scheduler import Scheduler, SchedulerLimits, StepPlan, num_common
from service.generation.steps.speculation import Speculator

# Attention computes padding of packed prompts too: positions for each token of the budget.
MAX_PADDED = 4


class SlotRuns(Protocol):
    """A decoder over slots, as far as a plan runs on it."""

    def run(
        self,
        first_slot: int,
        rows: Many[np.ndarray],
        num_past: Many[int],
        num_logits: int = 1,
        places: Many[int] = (),
    ) -> np.ndarray | StepLogits: ...


@dataclass(frozen=True, slots=True)
class SlotPlan(StepPlan):
    """One forward pass; the sequences are in neighbouring slots, in their order."""

    places: tuple[int, ...] = ()  # of the sequences' adapters; () where none has one

    @property
    def first_slot(self) -> int:
        slot = self.sequences[0].slot
        assert slot is not None, "a planned sequence has its slot"
        return slot

    def run_on(self, decoder: SlotRuns) -> StepLogits:
        num_past = [sequence.num_computed_tokens for sequence in self.sequences]
        rows = self.rows()
        is_part = num_past[0] + len(rows[0]) < self.sequences[0].num_tokens
        num_logits = sum(self.num_scored) + (0 if is_part else 1 + self.num_drafted)
        num_logits_run = max(1, num_logits)
        logits = StepLogits.of(
            decoder.run(self.first_slot, rows, num_past, num_logits_run, self.places)
        )
        return logits if num_logits else logits.take(slice(0))


class SlotScheduler(Scheduler[SlotPlan]):
    """Waiting sequences in their order, the one in chunks, and (in the cache) those decoding."""

    def __init__(
        self, limits: SchedulerLimits, cache: KVCache, adapters: AdapterPlaces | None = None
    ) -> None:
        super().__init__(limits, cache)
        self._cache = cache
        self._adapters = adapters  # None: the decoder takes none
        self._in_chunks: Sequence | None = None
        self._budget_tokens = limits.max_prefill_tokens  # left until the next decoding step
        self._num_decoding = 0  # sequences, when the last decoding step was planned
        self._speculator = Speculator(limits.max_draft_tokens)

    def running(self) -> list[Sequence]:
        return self._cache.decoding() + ([self._in_chunks] if self._in_chunks else [])

    def plan(self) -> SlotPlan | None:
        if self._adapters is None:
            return self._plan()
        if self._waiting:
            self._adapters.begin(sequence.request.adapter for sequence in self.running())
        plan = self._plan()
        if plan is None:
            return None
        places = tuple(self._adapters.place_of(each.request.adapter) for each in plan.sequences)
        return replace(plan, places=places) if any(places) else plan

    def _plan(self) -> SlotPlan | None:
        plan = self._plan_prefill()
        if plan is not None:
            num_computed = self._num_computed(plan.num_new_tokens)
            self._budget_tokens -= num_computed + self._limits.overhead_tokens
            return plan
        decoding = self._cache.decoding()
        self._num_decoding = len(decoding)
        self._budget_tokens = self._limits.max_prefill_tokens
        draft = self._speculator.draft(decoding)
        if draft is not None:
            return SlotPlan("decode", (draft.sequence,), (1,), 1, (draft,))
        if not decoding:
            return None
        num_rows = len(decoding)
        return SlotPlan("decode", tuple(decoding), (1,) * num_rows, num_rows)

    def ran(self, plan: SlotPlan, run_s: float, num_agreed: Mapping[Sequence, int]) -> None:
        for draft in plan.drafts:
            num_right = num_agreed[draft.sequence]
            self._speculator.checked(draft, num_right, self._num_decoding, run_s)
        if plan.phase == "decode" and not plan.drafts:
            self._speculator.stepped(len(plan.sequences), run_s)

    def settle(self, sequence: Sequence) -> None:
        if sequence.num_uncomputed_tokens > 1:
            assert sequence is self._in_chunks, "only a chunk leaves more than one token"
        elif sequence.slot is not None and sequence.slot >= self._cache.num_decoding:
            self._start_decoding(sequence)

    def end(self, sequence: Sequence, *, is_sound: bool = True) -> None:
        if sequence is self._in_chunks:
            self._in_chunks = None
        super().end(sequence, is_sound=is_sound)

    def _start_decoding(self, sequence: Sequence) -> None:
        if sequence is self._in_chunks:
            self._in_chunks = None
        self._cache.promote(sequence)

    def _plan_prefill(self) -> SlotPlan | None:
        while self._in_chunks is None:
            sequence = next(self._candidates(), None)
            if sequence is None or sequence.num_slots > self.num_free:
                return None
            source, num_same = self._find_prefix(sequence)
            if num_same and not self._can_afford(0):
                return None
            if num_same:
                self._admit_with_prefix(sequence, source, num_same)
            elif sequence.scores_prompt or sequence.num_tokens > self._limits.max_prefill_tokens:
                self._waiting.remove(sequence)
                self._cache.claim([sequence])
                self._in_chunks = sequence
            elif self._can_afford(sequence.num_tokens):
                return self._start_several(sequence)
            else:
                return None
        # Chunks have one size, independent of other requests, and so have their roundings.
        sequence = self._in_chunks
        num_tokens = min(sequence.num_uncomputed_tokens, self._chunk_tokens(sequence))
        if not self._can_afford(num_tokens):
            return None
        num_scored = (sequence.num_scored(num_tokens),)
        return SlotPlan("prefill", (sequence,), (num_tokens,), 0, num_scored=num_scored)

    def _chunk_tokens(self, sequence: Sequence) -> int:
        """The most tokens of a prompt in one run."""
        most = self._limits.max_prefill_tokens
        return min(most, self._limits.max_scored_tokens) if sequence.scores_prompt else most

    def _can_afford(self, num_tokens: int) -> bool:
        """Whether a run of this number of tokens may precede the next decoding step."""
        is_fresh = self._budget_tokens == self._limits.max_prefill_tokens
        return is_fresh or not self._cache.num_decoding or num_tokens < self._budget_tokens

    def _candidates(self) -> Iterator[Sequence]:
        """Waiting sequences in order, without those whose turn has not come.

        They wait for their leader's prefill, or for a place of their adapter.
        """
        for sequence in islice(self._waiting, self._limits.max_candidates):
            leader = sequence.leader
            if leader is not None and not leader.is_finished and leader.num_prompt_tokens_left:
                continue
            if self._adapters is None or self._adapters.claim(sequence.request.adapter):
                yield sequence

    def _find_prefix(self, sequence: Sequence) -> tuple[int | None, int]:
        """The slot to copy from, None for the store; how many tokens, 0 for nothing of worth."""
        if sequence.scores_prompt:  # what is copied has no logits
            return None, 0
        if self._limits.has_whole_prompts:
            return self._find_sample(sequence)
        if sequence.leader is None and not self._limits.can_reuse_prefixes:
            return None, 0
        wanted, namespace = (
            sequence.token_ids[: sequence.num_tokens - 1],
            sequence.request.namespace,
        )
        source, num_same = self._cache.find_prefix(wanted, namespace)
        if num_same + PIECE_TOKENS <= len(wanted):
            num_stored = self._cache.num_stored(wanted, namespace)
            if num_stored > num_same:
                return None, num_stored
        least = MIN_KEPT_TOKENS if sequence.leader is None else 1
        return source, num_same if num_same >= least else 0

    def _find_sample(self, sequence: Sequence) -> tuple[int | None, int]:
        """The slot of another sample, which has the whole prompt; its last token is left."""
        for other in self._cache.decoding() if sequence.leader else ():
            if other.request is sequence.request and other.slot is not None:
                return other.slot, sequence.num_tokens - 1
        return None, 0

    def _admit_with_prefix(self, sequence: Sequence, source: int | None, num_same: int) -> None:
        self._waiting.remove(sequence)
        if source is None:
            self._cache.claim_stored(sequence)
        else:
            self._cache.claim_with_prefix(sequence, source, num_same)
        self._budget_tokens -= self._limits.overhead_tokens  # copying takes its time too
        if sequence.num_uncomputed_tokens == 1:
            self._start_decoding(sequence)
        else:
            self._in_chunks = sequence

    def _start_several(self, first: Sequence) -> SlotPlan:
        """Prompts from their beginning: the oldest, and those that cost less with it than alone."""
        chosen = [first]
        num_free = self.num_free - first.num_slots
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
        return SlotPlan("prefill", tuple(chosen), lengths, 0)

    def _num_computed(self, lengths: Many[int]) -> int:
        """Tokens that a run of prompts computes, padding included where the graph has it."""
        return len(lengths) * max(lengths) if self._limits.pads_prompts else sum(lengths)

    def _fits(self, chosen: list[Sequence], sequence: Sequence) -> bool:
        if sequence.scores_prompt:
            return False
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
        prompt = sequence.token_ids[: sequence.num_tokens]
        namespace = sequence.request.namespace
        near = [other for other in chosen if other.request.namespace == namespace]
        if any(num_common(o.token_ids[: o.num_tokens], prompt) >= MIN_KEPT_TOKENS for o in near):
            return not self._limits.can_reuse_prefixes
        return not self._find_prefix(sequence)[1]
