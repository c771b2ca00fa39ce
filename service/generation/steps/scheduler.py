"""The common part of all schedulers: the order of waiting sequences, and the plan of a step.

Pure policy over the cache's accounting: no clock, thread, array of the session or metric. The
engine passes sequences in and runs what comes out, so any decision can be replayed in a test.

Which steps there are depends on what attention takes: see `slot_scheduler.py` and
`packed_scheduler.py`.

Waiting sequences run in the order of arrival. Each priority level counts as a later arrival, so
that the lowest levels are late but never starve.
"""

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from service.generation.choosing.step_logits import StepLogits
from service.generation.sequence import Sequence
from service.generation.steps.speculation import Draft

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Bounds of one model's steps."""

    max_running: int = 64  # sequences with a slot, also if the cache could hold more
    max_prefill_tokens: int = 256  # between two decoding steps, or beside one
    overhead_tokens: int = 16  # what one more run costs, in tokens; decision 0018
    priority_step_s: float = 5.0  # how much later each priority counts as having come
    can_reuse_prefixes: bool = True
    max_prefix_bytes: int = 0  # of prefixes that have no slot; 0: they are given up
    pads_prompts: bool = True  # in a run of several each costs as much as the longest
    has_whole_prompts: bool = False  # computed in one run each, or copied from another sample
    max_candidates: int = 256  # waiting sequences looked at when a step is planned
    max_draft_tokens: int = 0  # of one sequence, checked in one run; 0: no drafts
    max_scored_tokens: int = 0  # of prompts with log probabilities, in one run; 0: no scores


@dataclass(frozen=True, slots=True)
class StepPlan(ABC):
    """One forward pass: the next tokens of some sequences, and drafts after them."""

    phase: Phase  # prefill if any of it computes prompts
    sequences: tuple[Sequence, ...]
    num_new_tokens: tuple[int, ...]
    num_decoding: int  # sequences that have one new token, and perhaps a draft
    drafts: tuple[Draft, ...] = ()  # computed after the new token of their sequences
    num_scored: tuple[int, ...] = ()  # new tokens whose logits score a prompt; () where none do

    @property
    def num_prompt_tokens(self) -> int:
        return self.num_tokens - self.num_decoding - self.num_drafted

    @property
    def num_drafted(self) -> int:
        return sum(len(draft.token_ids) for draft in self.drafts)

    @property
    def num_tokens(self) -> int:
        return sum(self.num_new_tokens) + self.num_drafted

    def rows(self) -> list[np.ndarray]:
        """The ids to compute, int32, by sequence."""
        rows = [
            sequence.token_ids[sequence.num_computed_tokens :][:num_new]
            for sequence, num_new in zip(self.sequences, self.num_new_tokens, strict=True)
        ]
        for draft in self.drafts:
            place = self.sequences.index(draft.sequence)
            rows[place] = np.append(rows[place], draft.token_ids)
        return rows

    @abstractmethod
    def run_on(self, decoder: Any) -> StepLogits:  # noqa: ANN401 - of the kind that it is for
        """The logits of each sequence's last token, and of its drafted ones, in order.

        None of a sequence whose prompt goes on; before them, those of its scored tokens.
        """


Plan = TypeVar("Plan", bound=StepPlan)


class Cache(Protocol):
    """The accounting of a cache, as far as all schedulers use it alike."""

    @property
    def num_slots(self) -> int: ...

    def advance(self, sequence: Sequence, num_tokens: int) -> None: ...

    def fork(self, source: Sequence, target: Sequence) -> None: ...

    def release(self, sequence: Sequence, *, is_sound: bool = True) -> None: ...

    def check_integrity(self, sequences: Collection[Sequence]) -> None: ...


class Scheduler(ABC, Generic[Plan]):
    """Waiting sequences in their order; the cache has those that run."""

    def __init__(self, limits: SchedulerLimits, cache: Cache) -> None:
        self._limits = limits
        self._places = cache
        self._waiting: list[Sequence] = []  # sorted by _order
        self.max_running = min(limits.max_running, cache.num_slots)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._waiting)} waiting, {self._places!r}>"

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_free(self) -> int:
        """Slots that sequences which come now may take.

        A search keeps as many as it may ever have beams.
        """
        running = self.running()
        searches = {s.request for s in running if s.request.params.has_beams}
        num_alone = sum(not s.request.params.has_beams for s in running)
        num_kept = sum(request.params.beam_width for request in searches)
        return self.max_running - num_alone - num_kept

    def first_waiting(self, count: int) -> list[Sequence]:
        return self._waiting[:count]

    def sequences(self) -> list[Sequence]:
        """Every sequence that has not ended."""
        return self.running() + self._waiting

    def add(self, sequence: Sequence) -> None:
        insort(self._waiting, sequence, key=self._order)

    @abstractmethod
    def running(self) -> list[Sequence]:
        """Every sequence that has a slot between two steps."""

    @abstractmethod
    def plan(self) -> Plan | None:
        """The plan of the next run; None without work.

        The caller runs the step and says `computed`, then `settle` for each of its sequences that
        goes on, or `end`.
        """

    def computed(self, plan: Plan) -> None:
        """A plan's run succeeded."""
        for sequence, num_tokens in zip(plan.sequences, plan.num_new_tokens, strict=True):
            self._places.advance(sequence, num_tokens)

    @abstractmethod
    def ran(self, plan: Plan, run_s: float, num_agreed: Mapping[Sequence, int]) -> None:
        """Note the duration of a plan's run, and how many tokens of each draft were accepted."""

    def agree(self, sequence: Sequence) -> None:
        """The token that a sequence just took is in its slot already, as drafted."""
        self._places.advance(sequence, 1)

    @abstractmethod
    def settle(self, sequence: Sequence) -> None:
        """After its step, where it has not ended: put the sequence where its next step finds it."""

    def fork(self, source: Sequence, target: Sequence) -> None:
        """Between `computed` and `settle`: a beam goes on as another one, which has just run."""
        target.follow(source)
        self._places.fork(source, target)

    def end(self, sequence: Sequence, *, is_sound: bool = True) -> None:
        """Forget a sequence, wherever it is; not sound: a failed run may have spoiled its slot."""
        if sequence.slot is None:
            self._waiting.remove(sequence)
        else:
            self._places.release(sequence, is_sound=is_sound)

    def check_integrity(self) -> None:
        """Recount between two steps; raises `AssertionError`."""
        keys = [self._order(sequence) for sequence in self._waiting]
        assert keys == sorted(keys), "the queue is out of order"
        assert all(sequence.slot is None for sequence in self._waiting), "a slot for one waiting"
        assert not any(sequence.is_finished for sequence in self.sequences()), "an ended one stays"
        assert self.num_free >= 0, "more run than may"
        self._places.check_integrity(self.running())

    def _order(self, sequence: Sequence) -> tuple[float, int]:
        step_s = self._limits.priority_step_s
        came_s = sequence.timings.queued_s + sequence.request.priority * step_s
        return came_s, sequence.sample_index


def num_common(one: np.ndarray, other: np.ndarray) -> int:
    """The number of equal tokens at the beginning of two texts."""
    count = min(len(one), len(other))
    is_same = one[:count] == other[:count]
    return count if is_same.all() else int(np.argmin(is_same))
