"""Decides the work of the next run over a paged cache: any tokens of any sequences, packed.

Pure policy, like `service/generation/scheduler.py`. Attention over blocks takes rows of any lengths
over pasts of any lengths, so there is one kind of step:

    each sequence that decodes: its next token, and a draft after it where one is likely to hold
    then prompts: the next tokens of those begun, and of those that wait, while the budget lasts

`max_step_tokens` bounds how long a prompt delays the sequences that decode. Waiting sequences begin
in the order of arrival, each priority level counting as a later arrival, and the first in line is
passed by no other. One whose beginning another sequence is computing waits for it and shares it.
"""

from bisect import insort
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np

from service.generation.blocks import BlockCache
from service.generation.sequence import Sequence
from service.generation.speculation import lookup

LEAST_CHANCE = 0.3  # that a drafted token holds, together with those before it


@dataclass(frozen=True, slots=True)
class PackedLimits:
    """Bounds of one model's packed steps."""

    max_running: int = 256  # sequences with a place
    max_step_tokens: int = 2_048  # computed by one run; more than sequences that may run
    priority_step_s: float = 5.0  # how much later each priority counts as having come
    max_draft_tokens: int = 0  # of one sequence in one run; 0: no drafts


@dataclass(frozen=True, slots=True)
class PackedRow:
    """The tokens of one sequence in a run."""

    sequence: Sequence
    num_past: int
    num_new: int
    draft: np.ndarray  # int32, after the new tokens; mostly empty

    @property
    def token_ids(self) -> np.ndarray:
        """The ids to compute, int32."""
        new = self.sequence.token_ids[self.num_past : self.num_past + self.num_new]
        return np.concatenate([new, self.draft]) if len(self.draft) else new

    @property
    def num_tokens(self) -> int:
        return self.num_new + len(self.draft)

    @property
    def num_logits(self) -> int:
        """Of its last token and its drafted ones; none while its prompt is not complete."""
        is_complete = self.num_past + self.num_new == self.sequence.num_tokens
        return 1 + len(self.draft) if is_complete else 0


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """A run as `PackedAttention`'s graph takes it; int32, and int64 for ids and positions."""

    input_ids: np.ndarray  # [tokens]
    position_ids: np.ndarray  # [tokens]
    cumulative_sequence_length: np.ndarray  # [rows + 1]
    past_seqlens: np.ndarray  # [rows]
    block_table: np.ndarray  # [rows, most blocks of a row]; -1 behind a row's blocks
    logit_positions: np.ndarray  # of tokens whose logits are wanted, by rows


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """One forward pass."""

    rows: tuple[PackedRow, ...]

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        return tuple(row.sequence for row in self.rows)

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)

    def inputs(self, cache: BlockCache) -> PackedInputs:
        """The arrays of the run."""
        counts = np.array([row.num_tokens for row in self.rows])
        ends = np.cumsum(counts)
        positions = [np.arange(row.num_past, row.num_past + row.num_tokens) for row in self.rows]
        wanted = [
            np.arange(end - row.num_logits, end) for row, end in zip(self.rows, ends, strict=True)
        ]
        blocks = [cache.blocks(row.sequence) for row in self.rows]
        table = np.full((len(blocks), max(map(len, blocks))), -1, np.int32)
        for index, own in enumerate(blocks):
            table[index, : len(own)] = own
        return PackedInputs(
            input_ids=np.concatenate([row.token_ids for row in self.rows]).astype(np.int64),
            position_ids=np.concatenate(positions).astype(np.int64),
            cumulative_sequence_length=np.append(0, ends).astype(np.int32),
            past_seqlens=np.array([row.num_past for row in self.rows], np.int32),
            block_table=table,
            logit_positions=np.concatenate(wanted).astype(np.int64),
        )


class PackedScheduler:
    """Waiting sequences in their order, and (in the cache) those that run."""

    def __init__(self, limits: PackedLimits, cache: BlockCache) -> None:
        self._limits = limits
        self._cache = cache
        self._waiting: list[Sequence] = []  # sorted by _order
        self.max_running = min(limits.max_running, cache.num_slots)
        assert limits.max_step_tokens > self.max_running, "prompts would never get a token"

    def __repr__(self) -> str:
        return f"<PackedScheduler {len(self._waiting)} waiting, {self._cache!r}>"

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_free(self) -> int:
        """Places that sequences which come now may take."""
        return self.max_running - self._num_places()

    def first_waiting(self, count: int) -> list[Sequence]:
        return self._waiting[:count]

    def running(self) -> list[Sequence]:
        return self._cache.running()

    def sequences(self) -> list[Sequence]:
        """Every sequence that has not ended."""
        return self.running() + self._waiting

    def add(self, sequence: Sequence) -> None:
        insort(self._waiting, sequence, key=self._order)

    def plan(self) -> PackedPlan | None:
        """The plan of the next run; None without work.

        The caller runs it and says `computed`, then `agree` for each drafted token that a sequence
        took, and `end` for sequences that are complete.
        """
        running = self.running()
        decoding = [each for each in running if each.num_uncomputed_tokens == 1]
        rows = self._decoding_rows(decoding)
        budget = self._limits.max_step_tokens - sum(row.num_tokens for row in rows)
        begun = [each for each in running if each.num_uncomputed_tokens > 1]
        for sequence in begun:
            if budget:
                rows.append(self._prompt_row(sequence, budget))
                budget -= rows[-1].num_tokens
        while budget and (sequence := self._begin()) is not None:
            rows.append(self._prompt_row(sequence, budget))
            budget -= rows[-1].num_tokens
        for row in rows:
            self._cache.reserve(row.sequence, row.num_tokens)
        return PackedPlan(tuple(rows)) if rows else None

    def computed(self, plan: PackedPlan) -> None:
        """A plan's run succeeded."""
        for row in plan.rows:
            self._cache.advance(row.sequence, row.num_new)

    def agree(self, sequence: Sequence) -> None:
        """The token that a sequence just took is in its blocks already, as drafted."""
        self._cache.advance(sequence, 1)

    def fork(self, source: Sequence, target: Sequence) -> None:
        """After `computed`: a beam goes on as another one, which has just run."""
        target.follow(source)
        self._cache.fork(source, target)

    def end(self, sequence: Sequence, *, is_sound: bool = True) -> None:  # noqa: ARG002
        """Forget a sequence, wherever it is.

        After a failed run too: it has written to no block that others may find.
        """
        if sequence.slot is None:
            self._waiting.remove(sequence)
        else:
            self._cache.release(sequence)

    def check_integrity(self) -> None:
        """Recount between two steps; raises `AssertionError`."""
        keys = [self._order(sequence) for sequence in self._waiting]
        assert keys == sorted(keys), "the queue is out of order"
        assert all(sequence.slot is None for sequence in self._waiting), "a place for one waiting"
        assert not any(sequence.is_finished for sequence in self.sequences()), "an ended one stays"
        assert self._num_places() <= self.max_running, "more run than may"
        self._cache.check_integrity(self.running())

    def _order(self, sequence: Sequence) -> tuple[float, int]:
        step_s = self._limits.priority_step_s
        came_s = sequence.timings.queued_s + sequence.request.priority * step_s
        return came_s, sequence.sample_index

    def _num_places(self) -> int:
        """Places in use, or kept for the beams that a search may come to have."""
        running = self.running()
        searches = {s.request for s in running if s.request.params.has_beams}
        num_alone = sum(not s.request.params.has_beams for s in running)
        return num_alone + sum(request.params.beam_width for request in searches)

    def _decoding_rows(self, decoding: Many[Sequence]) -> list[PackedRow]:
        """Drafts share half of what the budget has left, and prompts have the rest."""
        spare = (self._limits.max_step_tokens - len(decoding)) // 2
        most = min(self._limits.max_draft_tokens, spare // max(1, len(decoding)))
        return [
            PackedRow(each, each.num_computed_tokens, 1, self._draft_of(each, most))
            for each in decoding
        ]

    def _draft_of(self, sequence: Sequence, most: int) -> np.ndarray:
        """As many tokens as are likely to hold, by how earlier drafts of the sequence did."""
        if not most or sequence.request.params.has_beams:
            return sequence.token_ids[:0]
        rate = sequence.drafts.rate(sequence.num_tokens)
        num_likely = int(np.log(LEAST_CHANCE) / np.log(rate))
        num_tokens = min(most, num_likely, sequence.num_output_tokens_left - 1)
        return lookup(sequence.token_ids[: sequence.num_tokens], max(0, num_tokens))

    def _prompt_row(self, sequence: Sequence, budget: int) -> PackedRow:
        num_new = min(sequence.num_uncomputed_tokens, budget)
        return PackedRow(sequence, sequence.num_computed_tokens, num_new, sequence.token_ids[:0])

    def _begin(self) -> Sequence | None:
        """The first in line, with a place, if it can begin now."""
        sequence = next(iter(self._waiting), None)
        if sequence is None or sequence.num_slots > self.num_free:
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
        size = self._cache.block_size
        num_known = self._cache.num_known_tokens(sequence)
        for other in self.running():
            is_leader = other is sequence.leader and other.num_prompt_tokens_left > 0
            if is_leader or _num_to_come(other, sequence) >= num_known + size:
                return True
        return False

    def _sample_beside(self, sequence: Sequence) -> Sequence | None:
        """A running sample of the same request, which has its prompt but for the last token."""
        if sequence.leader is None:
            return None
        samples = [each for each in self.running() if each.request is sequence.request]
        num_needed = sequence.num_tokens - 1
        return next((each for each in samples if each.num_computed_tokens >= num_needed), None)


def _num_to_come(other: Sequence, sequence: Sequence) -> int:
    """The tokens of a beginning that both have and the other is computing; 0 if it is not."""
    if not other.num_prompt_tokens_left:
        return 0
    count = min(other.num_prompt_tokens, sequence.num_tokens - 1)
    is_same = other.token_ids[:count] == sequence.token_ids[:count]
    return count if is_same.all() else int(np.argmin(is_same))
