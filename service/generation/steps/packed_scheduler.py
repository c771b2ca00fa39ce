"""Decides the work of the next run over a paged cache: any tokens of any sequences, packed.

Attention over blocks takes rows of any lengths over pasts of any lengths, so there is one kind of
step:

    each sequence that decodes: its next token, and a draft after it where one is likely to hold
    then prompts: the next tokens of those begun, and of those that wait, `max_prefill_tokens` in
    all, which bounds how long they delay the sequences that decode; of those that are scored
    `max_scored_tokens` in all, which bounds the memory of their logits

The first in line is passed by no other. One whose beginning another sequence is computing waits for
it, and shares it.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from service.generation.cache.paged_cache import PagedCache
from service.generation.choosing.step_logits import StepLogits
from service.generation.sequence import Sequence
from service.generation.steps.scheduler import Scheduler, SchedulerLimits, StepPlan, num_common
from service.generation.steps.speculation import Draft, draft_of, is_forced

LEAST_CHANCE = 0.3  # that a drafted token holds, together with those before it


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """A run over blocks, as ONNX Runtime's `PagedAttention` takes it."""

    input_ids: np.ndarray  # int64 [tokens]: of all rows, one after the other
    position_ids: np.ndarray  # int64 [tokens]
    cumulative_sequence_length: np.ndarray  # int32 [rows + 1]
    past_seqlens: np.ndarray  # int32 [rows]
    block_table: np.ndarray  # int32 [rows, most blocks of a row]; -1 behind a row's blocks
    logit_positions: np.ndarray  # int64 [wanted]: of tokens whose logits are wanted

    @classmethod
    def of(
        cls,
        rows: Many[np.ndarray],
        num_past: Many[int],
        block_table: np.ndarray,
        logit_positions: np.ndarray | None = None,
    ) -> "PackedInputs":
        """The new tokens of rows behind their past; by default the logits of each row's last."""
        num_tokens, past = np.array([len(row) for row in rows]), np.array(num_past)
        ends = np.cumsum(num_tokens)
        places = np.arange(ends[-1]) - np.repeat(ends - num_tokens - past, num_tokens)
        return cls(
            input_ids=np.concatenate(rows).astype(np.int64),
            position_ids=places.astype(np.int64),
            cumulative_sequence_length=np.append(0, ends).astype(np.int32),
            past_seqlens=past.astype(np.int32),
            block_table=block_table.astype(np.int32, copy=False),
            logit_positions=ends - 1 if logit_positions is None else logit_positions,
        )


class BlockRuns(Protocol):
    """A decoder over blocks, as far as a plan runs on it."""

    def run(self, inputs: PackedInputs) -> np.ndarray | StepLogits: ...


@dataclass(frozen=True, slots=True)
class PackedPlan(StepPlan):
    """One forward pass over the blocks of its sequences."""

    blocks: tuple[Many[int], ...] = ()  # of each sequence
    num_past: tuple[int, ...] = ()

    def run_on(self, decoder: BlockRuns) -> StepLogits:
        return StepLogits.of(decoder.run(self.inputs()))

    def inputs(self) -> PackedInputs:
        """The arrays of the run."""
        rows = self.rows()
        ends = np.cumsum([len(row) for row in rows])
        table = np.full((len(rows), max(map(len, self.blocks))), -1, np.int32)
        for index, blocks in enumerate(self.blocks):
            table[index, : len(blocks)] = blocks
        return PackedInputs.of(rows, self.num_past, table, self._logit_positions(ends))

    def _logit_positions(self, ends: np.ndarray) -> np.ndarray:
        """Positions of needed logits: scored tokens, the last of complete sequences, and drafts."""
        num_drafted = {draft.sequence: len(draft.token_ids) for draft in self.drafts}
        wanted = [np.empty(0, np.int64)]
        for place, (sequence, end) in enumerate(zip(self.sequences, ends.tolist(), strict=True)):
            is_complete = self.num_past[place] + self.num_new_tokens[place] == sequence.num_tokens
            count = 1 + num_drafted.get(sequence, 0) if is_complete else 0
            count += self.num_scored[place] if self.num_scored else 0
            wanted.append(np.arange(end - count, end))
        return np.concatenate(wanted)


class PackedScheduler(Scheduler[PackedPlan]):
    """Waiting sequences in their order; the cache has those that run."""

    def __init__(self, limits: SchedulerLimits, cache: PagedCache) -> None:
        super().__init__(limits, cache)
        self._cache = cache

    def running(self) -> list[Sequence]:
        return self._cache.running()

    def plan(self) -> PackedPlan | None:
        running = self.running()
        decoding = [each for each in running if each.num_uncomputed_tokens == 1]
        drafts = self._drafts(decoding)
        num_new = dict.fromkeys(decoding, 1)
        left = self._limits.max_prefill_tokens - sum(len(each.token_ids) for each in drafts)
        num_steps = len(num_new)
        num_new |= self._prompts(running, left)
        if not num_new:
            return None
        drafted = {draft.sequence: len(draft.token_ids) for draft in drafts}
        for sequence, count in num_new.items():
            self._cache.reserve(sequence, count + drafted.get(sequence, 0))
        return PackedPlan(
            phase="decode" if len(num_new) == num_steps else "prefill",
            sequences=tuple(num_new),
            num_new_tokens=tuple(num_new.values()),
            num_decoding=num_steps,
            drafts=drafts,
            blocks=tuple(self._cache.blocks(sequence) for sequence in num_new),
            num_past=tuple(sequence.num_computed_tokens for sequence in num_new),
            num_scored=tuple(each.num_scored(count) for each, count in num_new.items()),
        )

    def _prompts(self, running: Many[Sequence], left: int) -> dict[Sequence, int]:
        """The next tokens of prompts, `left` at most: of those begun, and of those that wait."""
        num_new: dict[Sequence, int] = {}
        left_scored = self._limits.max_scored_tokens

        def take(sequence: Sequence) -> None:
            nonlocal left, left_scored
            most = min(left, left_scored) if sequence.scores_prompt else left
            if count := min(sequence.num_uncomputed_tokens, most):
                num_new[sequence] = count
                left -= count
                left_scored -= count if sequence.scores_prompt else 0

        for sequence in running:
            if sequence.num_uncomputed_tokens > 1:
                take(sequence)
        while left and (begun := self._begin(can_score=left_scored > 0)) is not None:
            take(begun)
        return num_new

    def ran(self, plan: PackedPlan, run_s: float, num_agreed: Mapping[Sequence, int]) -> None:
        del run_s  # a drafted token costs little in a run that reads all weights
        for draft in plan.drafts:
            sequence, num_drafted = draft.sequence, len(draft.token_ids)
            if not draft.is_forced:
                sequence.drafts.add(num_agreed[sequence], num_drafted, sequence.num_tokens)

    def settle(self, sequence: Sequence) -> None:
        """No-op: packed sequences keep their place."""

    def _drafts(self, decoding: Many[Sequence]) -> tuple[Draft, ...]:
        """Drafts share half of the tokens that prompts could have, evenly."""
        most = self._limits.max_prefill_tokens // 2 // max(1, len(decoding))
        most = min(most, self._limits.max_draft_tokens)
        drafts = (
            [Draft(each, self._draft_of(each, most), is_forced(each)) for each in decoding]
            if most
            else []
        )
        return tuple(draft for draft in drafts if len(draft.token_ids))

    def _draft_of(self, sequence: Sequence, most: int) -> np.ndarray:
        """Draft of as many tokens as are likely to hold, by earlier drafts of the sequence."""
        if sequence.request.params.has_beams:
            return sequence.token_ids[:0]
        rate = sequence.drafts.rate(sequence.num_tokens)
        num_likely = int(np.log(LEAST_CHANCE) / np.log(rate))
        num_likely = most if is_forced(sequence) else num_likely
        num_tokens = min(most, num_likely, sequence.num_output_tokens_left - 1)
        return draft_of(sequence, max(0, num_tokens))

    def _begin(self, *, can_score: bool) -> Sequence | None:
        """The first in line, with a place, if it can begin now."""
        sequence = next(iter(self._waiting), None)
        if sequence is None or sequence.num_slots > self.num_free:
            return None
        if sequence.scores_prompt and not can_score:
            return None
        if not self._cache.fits(sequence) or self._is_being_computed(sequence):
            return None
        source = self._sample_beside(sequence)
        if source is None:
            self._cache.claim(sequence)
        else:
            self._cache.claim_beside(sequence, source)
        self._waiting.remove(sequence)
        return sequence

    def _is_being_computed(self, sequence: Sequence) -> bool:
        """Whether a running sequence will soon have a further block of its beginning."""
        begun = [other for other in self.running() if other.num_prompt_tokens_left]
        if sequence.leader in begun:
            return True
        if not begun or not self._cache.can_reuse or sequence.scores_prompt:
            return False
        num_wanted = self._cache.num_known_tokens(sequence) + self._cache.block_size
        prompt, namespace = (
            sequence.token_ids[: sequence.num_tokens - 1],
            sequence.request.namespace,
        )
        near = [each.request for each in begun if each.request.namespace == namespace]
        return any(num_common(other.prompt_ids, prompt) >= num_wanted for other in near)

    def _sample_beside(self, sequence: Sequence) -> Sequence | None:
        """A running sample of the same request, which has its prompt but for the last token."""
        if sequence.leader is None:
            return None
        samples = [each for each in self.running() if each.request is sequence.request]
        num_needed = sequence.num_tokens - 1
        return next((each for each in samples if each.num_computed_tokens >= num_needed), None)
