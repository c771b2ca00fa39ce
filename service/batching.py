"""Form batches from waiting items under a token budget.

Pure policy: no clock, thread, array or metric. The engine holds the lock and
passes the time in, so any decision made here can be replayed in a unit test.

A padded batch of B rows costs B * S tokens, S being its longest row: padding is
paid for like text. Each run costs a fixed overhead besides. So the batch to run
is the one with the most real tokens per token paid,

    sum(lengths) / (overhead + B * S)

among the batches of neighbours in length that hold the **oldest** item and waste
no more on padding than they save in runs, (B - 1) * overhead. The oldest always
goes, so an item waits for at most as many batches as there were items before it,
whatever their lengths.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from service.errors import InvalidArgument, Overloaded
from service.request import Item, Request


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of one model's queue and batches."""

    max_rows: int = 64
    max_tokens: int = 16_384  # B * S of one batch, padding included
    max_waiting_requests: int = 512
    max_waiting_tokens: int = 262_144
    overhead_tokens: int = 16  # what one more run costs, in tokens; docs/benchmarks.md
    max_candidates: int = 256  # items looked at when a batch is formed
    max_delay_s: float = 0.0  # how long a batch may wait for company; 0: not at all
    preferred_rows: tuple[int, ...] = ()  # sizes to aim at while the delay lasts


class BatchQueue:
    """Waiting items, oldest first; never more than the limits allow."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._waiting: dict[Item, None] = {}  # in order of arrival
        self.num_requests = 0
        self.num_tokens = 0
        self._num_items: dict[Request, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<BatchQueue {self.num_requests} requests, {self.num_tokens} tokens>"

    def check_room(self, num_tokens: int = 0) -> None:
        """Raise `Overloaded` if a request of so many tokens would exceed a bound."""
        limits = self._limits
        is_over_tokens = self.num_tokens + num_tokens > limits.max_waiting_tokens
        if self.num_requests >= limits.max_waiting_requests or is_over_tokens:
            raise Overloaded("Exceeds maximum queue size")

    def put(self, request: Request) -> None:
        """Admit all items of a request, or leave the queue as it was.

        Raises `Overloaded`, or `InvalidArgument` for a request that no empty queue could hold.
        """
        limits = self._limits
        for item in request.items:
            assert item.num_rows <= limits.max_rows, "no batch could hold it"
            assert item.num_rows * item.num_tokens <= limits.max_tokens, "no batch could hold it"
        if request.num_tokens > limits.max_waiting_tokens:
            raise InvalidArgument(
                f"the request has {request.num_tokens} tokens, "
                f"the queue takes at most {limits.max_waiting_tokens}"
            )
        self.check_room(request.num_tokens)
        self._waiting.update(dict.fromkeys(request.items))
        self._num_items[request] = len(request.items)
        self.num_requests += 1
        self.num_tokens += request.num_tokens

    def drop(self, request: Request) -> None:
        """Remove what still waits of a request."""
        self._remove([item for item in request.items if item in self._waiting])

    def due_s(self) -> float | None:
        """When the next batch may run: a past time for at once, None while nothing waits."""
        if not self._waiting:
            return None
        queued_s = self._oldest.request.timings.queued_s
        if self._limits.max_delay_s <= 0:
            return queued_s
        batch = self._best_batch()
        enough = min(self._limits.preferred_rows, default=self._limits.max_rows)
        is_enough = sum(item.num_rows for item in batch) >= enough
        is_closed = len(batch) < len(self._waiting)  # what comes would not join it either
        return queued_s if is_enough or is_closed else queued_s + self._limits.max_delay_s

    def take(self, now_s: float) -> tuple[list[Item], list[Request]]:
        """Remove and return `(batch, expired)`: items to run now, requests past their deadline."""
        expired = [r for r in self._num_items if r.deadline_s is not None and r.deadline_s <= now_s]
        for request in expired:
            self.drop(request)
        batch = self._best_batch() if self._waiting else []
        self._remove(batch)
        return batch, expired

    def take_all(self) -> list[Request]:
        """Remove and return every waiting request."""
        requests = list(self._num_items)
        self._remove(list(self._waiting))
        return requests

    @property
    def _oldest(self) -> Item:
        return next(iter(self._waiting))

    def _remove(self, items: Iterable[Item]) -> None:
        for item in items:
            del self._waiting[item]
            self.num_tokens -= item.num_rows * item.num_tokens
            self._num_items[item.request] -= 1
            if not self._num_items[item.request]:
                del self._num_items[item.request]
                self.num_requests -= 1

    def _best_batch(self) -> list[Item]:
        oldest = self._oldest
        alike = [
            item
            for item in islice(self._waiting, self._limits.max_candidates)
            if item.shape_key == oldest.shape_key
        ]
        alike.sort(key=lambda item: item.num_tokens)
        window = self._most_efficient_window(alike, alike.index(oldest))
        return self._trim_to_preferred(alike[window], oldest)

    def _most_efficient_window(self, items: list[Item], anchor: int) -> slice:
        """The run of `items` (sorted by length) around `anchor` that wastes least.

        Every window [low, high] with low <= anchor <= high is scored at once:
        rows of `score` are lows, columns are highs.
        """
        limits = self._limits
        rows = np.fromiter((item.num_rows for item in items), np.int64, len(items))
        lengths = np.fromiter((item.num_tokens for item in items), np.int64, len(items))
        rows_before = np.concatenate(([0], np.cumsum(rows)))
        tokens_before = np.concatenate(([0], np.cumsum(rows * lengths)))
        low, high = np.arange(anchor + 1)[:, None], np.arange(anchor, len(items))[None, :]
        num_rows = rows_before[high + 1] - rows_before[low]
        paid = num_rows * lengths[high]
        real = tokens_before[high + 1] - tokens_before[low]
        saved = (high - low) * limits.overhead_tokens  # runs that need not be
        paid_in_all = np.maximum(limits.overhead_tokens + paid, 1)  # no rows, no overhead: 0 / 0
        is_worse = paid - real > saved
        is_too_large = (num_rows > limits.max_rows) | (paid > limits.max_tokens)
        score = np.where(is_worse | is_too_large, -1.0, real / paid_in_all)
        best_low, best_high = np.unravel_index(np.argmax(score), score.shape)
        return slice(int(best_low), anchor + int(best_high) + 1)

    def _trim_to_preferred(self, batch: list[Item], oldest: Item) -> list[Item]:
        """Cut a batch to the largest preferred size it reaches, keeping its oldest item."""
        num_rows = sum(item.num_rows for item in batch)
        target = max((size for size in self._limits.preferred_rows if size <= num_rows), default=0)
        if not target:
            return batch
        room = target - oldest.num_rows
        kept = [oldest]
        for item in batch:
            if item is not oldest and item.num_rows <= room:
                kept.append(item)
                room -= item.num_rows
        return kept if room == 0 else batch
