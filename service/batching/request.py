"""Requests, their items, and their time stamps.

A request is admitted whole and answered once. It holds one or more items, and
an item is what batching may not split: one text, or all rows of one tensor
request. Items of one request may run in different batches.

Clocks are `time.monotonic()` seconds throughout.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from service.contract.tensors import Arrays
from service.records import Timings


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
    # Its rows of an output, by name, where they are not its rows of input.
    output_rows: Mapping[str, int] = field(default_factory=dict)


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
    call: object | None = None  # the record of records.py, if there is an observer

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
