"""Arrivals and leavers between the event loop and an engine's thread, with bounds.

It is the only state of the engine that two threads share: everything is guarded by one lock.
"""

import threading
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from service.contract.queue_policies import QueuePolicy
from service.errors import Overloaded, Unavailable, invalid_field
from service.generation.sequence import Sequence
from service.generation.wait_estimator import Ahead


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of the sequences that wait for a slot; one more is refused at once."""

    max_sequences: int = 512
    max_tokens: int = 262_144  # of prompts
    policy: QueuePolicy = field(default_factory=QueuePolicy)  # how long; how many is above

    def check(self, num_sequences: int, num_tokens: int) -> None:
        """Raise `InvalidArgument` for one request that never fits."""
        if num_sequences > self.max_sequences or num_tokens > self.max_tokens:
            raise invalid_field(
                "n",
                f"is {num_sequences}, and {num_tokens} prompt tokens in all; the queue takes "
                f"at most {self.max_sequences} sequences and {self.max_tokens} tokens",
            )


class Inbox:
    """Arrivals and leavers since the last step, and what waits for its first one in all."""

    def __init__(self, limits: QueueLimits) -> None:
        self.num_waiting = 0
        self.is_closing = False
        self._limits = limits
        self._num_tokens = 0  # of the prompts that wait
        self._waiting: dict[int, Ahead] = {}  # by priority
        self._arrivals: list[Sequence] = []
        self._leavers: list[Sequence] = []
        self._changed = threading.Condition()

    def check_room(self, num_sequences: int, num_tokens: int) -> None:
        """Raise `Overloaded` or `Unavailable` where so much more would be refused."""
        with self._changed:
            self._check_room(num_sequences, num_tokens)

    def arrive(self, sequences: Many[Sequence]) -> None:
        """All of a request, or `Overloaded` or `Unavailable`."""
        num_tokens = sum(sequence.num_prompt_tokens for sequence in sequences)
        with self._changed:
            self._check_room(len(sequences), num_tokens)
            self._arrivals += sequences
            self._count(sequences, 1)
            self._changed.notify()

    def leave(self, sequences: Many[Sequence]) -> None:
        with self._changed:
            self._leavers += sequences
            self._changed.notify()

    def close(self) -> None:
        """Close: refuse new sequences and wake the worker."""
        with self._changed:
            self.is_closing = True
            self._changed.notify()

    def take(self, *, can_wait: bool) -> tuple[list[Sequence], list[Sequence]]:
        """Arrivals and leavers; with `can_wait`, waits until there are any."""
        with self._changed:
            while can_wait and not (self.is_closing or self._arrivals or self._leavers):
                self._changed.wait()
            taken = self._arrivals, self._leavers
            self._arrivals, self._leavers = [], []
            return taken

    def count_out(self, sequences: Many[Sequence]) -> None:
        """Count sequences that wait no longer."""
        with self._changed:
            self._count(sequences, -1)

    def ahead_of(self, priority: int) -> Ahead:
        """The waiting sequences and tokens ahead of a new sequence."""
        with self._changed:
            waiting = [ahead for each, ahead in self._waiting.items() if each <= priority]
        return Ahead(
            sum(ahead.num_sequences for ahead in waiting), sum(a.num_tokens for a in waiting)
        )

    def _count(self, sequences: Many[Sequence], sign: int) -> None:
        for sequence in sequences:
            priority, num_tokens = sequence.request.priority, sequence.num_prompt_tokens
            before = self._waiting.pop(priority, Ahead(0, 0))
            count = before.num_sequences + sign
            if count:
                self._waiting[priority] = Ahead(count, before.num_tokens + sign * num_tokens)
            self.num_waiting += sign
            self._num_tokens += sign * num_tokens

    def _check_room(self, num_sequences: int, num_tokens: int) -> None:
        if self.is_closing:
            raise Unavailable(
                "Server is stopping, scheduler for model has stopped accepting new "
                "inference requests"
            )
        is_full = self.num_waiting + num_sequences > self._limits.max_sequences
        if is_full or self._num_tokens + num_tokens > self._limits.max_tokens:
            raise Overloaded("Exceeds maximum queue size")
