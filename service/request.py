"""Requests, their items, and their time stamps.

A request is admitted whole and answered once. It holds one or more items, and
an item is what batching may not split: one text, or all rows of one tensor
request. Items of one request may run in different batches.

Clocks are `time.monotonic()` seconds throughout.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Self

import numpy as np

Arrays = Mapping[str, np.ndarray]


@dataclass(slots=True)
class Timings:
    """When a request passed each station; one record for response, log and metrics."""

    received_s: float
    _: KW_ONLY
    queued_s: float = 0.0
    started_s: float = 0.0  # its first item entered a batch
    finished_s: float = 0.0
    # Summed over the batches that computed its items.
    collate_s: float = 0.0
    run_s: float = 0.0
    split_s: float = 0.0
    expected_s: float = 0.0  # from queued_s to its end, by what was known then; 0: not at all

    @classmethod
    def without_batch(cls, received_s: float, now_s: float) -> Self:
        """The timings of a request that is answered now, without a batch."""
        return cls(received_s, queued_s=now_s, started_s=now_s, finished_s=now_s)

    def add(self, ran: "RanBatch") -> None:
        """Count a batch that some of the request's items were in."""
        self.collate_s += ran.collate_s
        self.run_s += ran.run_s
        self.split_s += ran.split_s

    @property
    def queue_s(self) -> float:
        return self.started_s - self.queued_s

    @property
    def compute_s(self) -> float:
        return self.collate_s + self.run_s + self.split_s

    @property
    def total_s(self) -> float:
        return self.finished_s - self.received_s


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """Rows that run together: one text of `num_tokens`, or the rows of a tensor request.

    `inputs` have a leading axis of `num_rows`. Items batch only with items of an equal
    `shape_key`; it says what may not be padded.
    """

    request: "Request"
    inputs: Arrays
    num_rows: int = 1
    num_tokens: int = 1  # per row; 1 where length has no meaning
    shape_key: Hashable = None
    num_outputs: int | None = None  # rows of output, where they are not its rows of input


@dataclass(slots=True, eq=False)
class Request:
    """Items admitted together and answered together, exactly once."""

    timings: Timings
    deadline_s: float | None = None
    priority: int = 0  # 1 is the most urgent, 0 leaves it to the model
    timeout_s: float | None = None  # how long it may wait in the queue; None leaves it to the model
    items: tuple[Item, ...] = ()
    results: dict[Item, list[np.ndarray]] = field(default_factory=dict)
    is_done: bool = False  # answered, failed or abandoned: its other items need not run
    call: object | None = None  # the record of call.py, if there is an observer

    @property
    def num_rows(self) -> int:
        return sum(item.num_rows for item in self.items)

    @property
    def num_tokens(self) -> int:
        return sum(item.num_rows * item.num_tokens for item in self.items)

    def forget(self) -> None:
        """Let go of all arrays. Items know their request: until then the two keep each other."""
        assert self.is_done, "its items may still be needed"
        self.items = ()
        self.results = {}


@dataclass(frozen=True, slots=True)
class RanBatch:
    """One session run: what went in, and how long each part took."""

    items: Sequence[Item]
    collate_s: float
    run_s: float
    split_s: float
    started_s: float = 0.0

    @property
    def num_rows(self) -> int:
        return sum([item.num_rows for item in self.items])

    @property
    def num_tokens(self) -> int:
        return sum([item.num_rows * item.num_tokens for item in self.items])

    @property
    def num_padded_tokens(self) -> int:
        """B * S: what was computed, padding included."""
        return self.num_rows * max([item.num_tokens for item in self.items])
