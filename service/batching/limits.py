"""The bounds of one model's queue and batches; pure."""

from dataclasses import dataclass, field
from math import inf

from service.contract.queue_policies import QueuePolicies
from service.runtime.cost import CostCurve

PARTS = 2  # of large requests, that fill the queue


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of one model's queue and batches."""

    max_rows: int = 64
    max_tokens: int = 16_384  # B * S of one batch, padding included
    queue: QueuePolicies = field(default_factory=QueuePolicies)
    max_waiting_rows: int = 32_768
    max_waiting_tokens: int = 262_144
    max_background_tokens: int = 512  # of a run of background requests, padding included
    cost: CostCurve = field(default_factory=CostCurve)
    max_cost: float = inf  # of a batch of several items, in tokens
    run_cost: CostCurve = field(default_factory=CostCurve)  # by the clock; `cost` forms batches
    max_candidates: int = 256  # items looked at when a batch is formed
    max_delay_s: float = 0.0  # how long a batch may wait for company; 0: not at all
    preferred_rows: tuple[int, ...] = ()  # sizes to aim at while the delay lasts

    @property
    def part_rows(self) -> int:
        """Rows of a request that wait at once; those of a larger one come after them."""
        return max(1, self.max_waiting_rows // PARTS)

    @property
    def part_tokens(self) -> int:
        """Tokens of a request that wait at once; those of a larger one come after them."""
        return max(1, self.max_waiting_tokens // PARTS)
