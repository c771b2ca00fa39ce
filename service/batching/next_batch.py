"""Choose the items of the next batch: those that make it most useful for what it costs.

Pure policy: no clock, thread or metric.

A padded batch costs an overhead and the work of its rows, `service/runtime/cost.py`. Of that the
part is useful that its rows would cost without padding, each alone. So the batch to run is the
one that is most useful for its cost,

    useful / (overhead + work)

among the batches of neighbours in length that hold the **oldest** item and waste no more on
padding, `work - useful`, than they save in runs, `(items - 1) * overhead`. The oldest always
goes, so an item waits for at most as many batches as there were items before it,
whatever their lengths. If costs were measured, a batch stops growing when its overhead hardly
matters any more, `max_cost`: later requests would only wait longer for it.

With priority levels, the batch is formed from the first level with waiting requests; lower
levels fill the rest of it, if they make no row of it longer. There is no other rule
between levels: under a constant load of the first, the last starves.

Background requests fill up no batch. A batch of theirs holds texts of one request only, and
which ones depends on that request alone: its shortest waiting ones, as many as
`max_background_tokens` allows. So the same request runs in the same batches whatever else
is served, and its answer is the same to the bit.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from math import inf

import numpy as np

from service.batching.limits import BatchLimits
from service.batching.request import Item

MAX_BATCHES_AHEAD = 4  # full ones, that items of requests of several texts are chosen from
ROUNDING = 1e-6  # tokens; sums of prices are off by less


class NextBatch:
    """The choice of the next batch, within the limits of one model."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits

    def of(self, lanes: Sequence[Mapping[Item, None]]) -> list[Item]:
        """The next batch from lanes in their order, each with its oldest item first."""
        first, *others = lanes
        oldest, most = next(iter(first)), self._limits.max_candidates
        alike = self._alike(first, oldest)
        batch = alike
        if len(alike) > 1:
            alike.sort(key=lambda item: item.num_tokens)
            batch = alike[self._most_efficient_window(alike, alike.index(oldest))]
        if others:
            company = islice(chain.from_iterable(others), max(0, most - len(first)))
            batch = self._with_company(batch, company)
        return self._trim_to_preferred(batch, oldest)

    def of_background(self, items: Sequence[Item]) -> list[Item]:
        """The next batch from the waiting items of one background request, in its order."""
        limits = self._limits
        in_order = sorted(items, key=lambda item: item.num_tokens)  # stable
        batch, num_rows = in_order[:1], in_order[0].num_rows
        most = min(limits.max_background_tokens, limits.max_tokens)
        for item in in_order[1:]:
            num_rows += item.num_rows
            is_alike = item.shape_key == batch[0].shape_key
            if not is_alike or num_rows > limits.max_rows or num_rows * item.num_tokens > most:
                break
            batch.append(item)
        return batch

    def _alike(self, lane: Iterable[Item], oldest: Item) -> list[Item]:
        """The first items that may run with the oldest, up to what a few batches compute.

        Were it more, batches of one length after the other would begin many requests of several
        texts before they complete any.
        """
        limits = self._limits
        alike, amount, most = [], 0.0, MAX_BATCHES_AHEAD * limits.max_cost
        for item in islice(lane, limits.max_candidates):
            if item.shape_key == oldest.shape_key:
                alike.append(item)
            if most < inf and len(item.request.items) > 1:
                num_tokens = item.num_rows * item.num_tokens
                amount += limits.run_cost.work(item.num_rows, item.num_tokens, num_tokens)
                if amount > most:
                    break
        return alike

    def _with_company(self, batch: list[Item], others: Iterable[Item]) -> list[Item]:
        """Fill a batch, sorted by length, with items of lower levels that make it no longer.

        One joins where its padding costs no more than a run of its own would.
        """
        limits, cost, longest = self._limits, self._limits.cost, batch[-1]
        num_rows = sum(item.num_rows for item in batch)
        filled = list(batch)
        for item in others:
            own = (item.num_rows, item.num_tokens, item.num_rows * item.num_tokens)
            padded = (item.num_rows, longest.num_tokens, own[-1])
            rows = num_rows + item.num_rows
            if (
                item.shape_key == longest.shape_key
                and item.num_tokens <= longest.num_tokens
                and cost.work(*padded) - cost.work(*own) <= cost.overhead
                and rows <= limits.max_rows
                and rows * longest.num_tokens <= limits.max_tokens
            ):
                filled.append(item)
                num_rows = rows
        return filled

    def _most_efficient_window(self, items: list[Item], anchor: int) -> slice:
        """The run of `items` (sorted by length) around `anchor` that wastes least.

        Every window [low, high] with low <= anchor <= high is scored at once:
        rows of `score` are lows, columns are highs.
        """
        limits, cost = self._limits, self._limits.cost
        if self._all_fit_alike(items):
            return slice(len(items))
        rows = np.fromiter((item.num_rows for item in items), np.int64, len(items))
        lengths = np.fromiter((item.num_tokens for item in items), np.int64, len(items))
        before = [
            np.concatenate(([0], np.cumsum(values)))
            for values in (rows, rows * lengths, cost.work(rows, lengths, rows * lengths))
        ]
        low, high = np.arange(anchor + 1)[:, None], np.arange(anchor, len(items))[None, :]
        num_rows, num_tokens, useful = (sums[high + 1] - sums[low] for sums in before)
        work = cost.work(num_rows, lengths[high], num_tokens)
        saved = (high - low) * cost.overhead  # runs that need not be
        is_worse = work - useful > saved + ROUNDING
        is_too_large = (num_rows > limits.max_rows) | (num_rows * lengths[high] > limits.max_tokens)
        is_too_large |= (cost.overhead + work > limits.max_cost) & (low < high)
        paid = np.maximum(cost.overhead + work, 1)  # no rows, no overhead: 0 / 0
        score = np.where(is_worse | is_too_large, -1.0, useful / paid)
        best_low, best_high = np.unravel_index(np.argmax(score), score.shape)
        return slice(int(best_low), anchor + int(best_high) + 1)

    def _all_fit_alike(self, items: list[Item]) -> bool:
        """Whether items, sorted by length, are of one length and fit a batch: none pads another.

        That is always so of small tensors, for which scoring would take longer than their run.
        """
        limits, cost, length = self._limits, self._limits.cost, items[-1].num_tokens
        if items[0].num_tokens != length or cost.overhead <= 0:
            return False
        num_rows = sum([item.num_rows for item in items])
        num_tokens = num_rows * length
        price = cost.overhead + cost.work(num_rows, length, num_tokens)
        return (
            num_rows <= limits.max_rows
            and num_tokens <= limits.max_tokens
            and price <= limits.max_cost
        )

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
