"""Replays of a load on a queue in virtual time: padding, waits and efficiency of its policy.

Clients that wait for their answer send texts of real lengths; runs take what a cost curve says, and
share the processors. No model, no server, no clock: the same figures everywhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from service.batching.limits import BatchLimits
from service.batching.queue import BatchQueue
from service.batching.request import Item, Request
from service.contract.model_config import parse_config
from service.records import Timings
from service.repository.limits import batch_limits, with_cost
from service.runtime.cost import CostCurve
from service.settings import Settings

NUM_RUNS = 2  # at once, as servers do by default
# Measured when the models loaded, rounded: decision 0018.
PACKED = {
    "MiniLM, float32": CostCurve(40.0, 0.05, 0.0008, 85e-6),
    "MiniLM, int8": CostCurve(50.0, 0.1, 0.001, 37e-6),
    "BERT-base, int8": CostCurve(36.0, 0.05, 0.0007, 220e-6),
}


@dataclass(slots=True)
class _Run:
    items: Sequence[Item]
    left: float  # of its cost, in tokens


@dataclass(slots=True)
class Replay:
    """Runs, waits and padding of a load."""

    cost: CostCurve
    waits_s: list[float] = field(default_factory=list)  # in the queue
    num_runs: int = 0
    num_rows: int = 0
    num_tokens: int = 0
    num_positions: int = 0  # B * S
    useful: float = 0.0  # costs in tokens
    work: float = 0.0
    seconds: float = 0.0

    @property
    def padding_share(self) -> float:
        """The share of padding in positions."""
        return 1 - self.num_tokens / self.num_positions

    @property
    def computed_padding_share(self) -> float:
        """The share of padding in the computed work, attention included."""
        return 1 - self.useful / self.work

    @property
    def efficiency(self) -> float:
        """Useful work of all time: no server with these runs can be faster than 1."""
        return self.useful * self.cost.token_s / self.seconds

    def wait_s(self, share: float) -> float:
        return sorted(self.waits_s)[min(int(share * len(self.waits_s)), len(self.waits_s) - 1)]

    def add(self, items: Sequence[Item], now_s: float) -> _Run:
        """Count a run that begins."""
        cost, longest = self.cost, max(item.num_tokens for item in items)
        num_tokens = sum(item.num_tokens for item in items)
        work = cost.work(len(items), longest, num_tokens)
        self.useful += sum(cost.work(1, item.num_tokens, item.num_tokens) for item in items)
        self.work += work
        self.num_runs += 1
        self.num_rows += len(items)
        self.num_tokens += num_tokens
        self.num_positions += len(items) * longest
        self.waits_s += [now_s - item.request.timings.queued_s for item in items]
        return _Run(items, cost.overhead + work)


def replay(
    limits: BatchLimits,
    cost: CostCurve,
    sizes: Sequence[int],
    num_clients: int,
    num_runs: int = NUM_RUNS,
) -> Replay:
    """Each client sends its next text when it has its answer, until all sizes were sent.

    `cost` is what runs really cost, whatever the limits believe.
    """
    queue, result, texts, now_s = BatchQueue(limits), Replay(cost), iter(sizes), 0.0
    runs: list[_Run] = []
    _send(queue, texts, now_s, num_clients)
    while True:
        while len(runs) < num_runs and len(queue):
            runs.append(result.add(queue.take(now_s)[0], now_s))
        if not runs:
            result.seconds = now_s
            return result
        step = min(run.left for run in runs)
        now_s += step * len(runs) * cost.token_s  # each has its share of the processors
        for run in runs:
            run.left -= step
        for run in [run for run in runs if run.left <= 0]:
            runs.remove(run)
            _send(queue, texts, now_s, len(run.items))


def _send(queue: BatchQueue, texts: Iterator[int], now_s: float, count: int) -> None:
    for _, size in zip(range(count), texts, strict=False):
        request = Request(Timings(now_s, queued_s=now_s))
        request.items = (Item(request, {}, 1, size),)
        queue.put(request)


def limits_of(cost: CostCurve) -> BatchLimits:
    """The batch limits of a measured model."""
    config = parse_config("max_batch_size: 64", "replayed")
    return with_cost(batch_limits(config, Settings(max_queue_s=0)), cost)
