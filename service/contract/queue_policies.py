"""How long requests of each priority level may wait, and how many: Triton's queue policies.

Level 1 is served first. A model without levels has one, whatever its requests ask for. After all
levels comes that of background requests, for which there is no bound on the expected wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

# The priority of background requests: the protocol's numbers have 64 bits, so no client names it.
BACKGROUND = 2**64


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """One level's policy for requests that come when it is full, or wait too long."""

    max_requests: int = 512
    timeout_s: float | None = None  # None: no limit
    can_override: bool = False  # a request may ask for less
    is_delaying: bool = False  # a late request goes last in its level, instead of ending
    max_wait_s: float = 30.0  # a request that is expected to wait longer is refused at once

    def timeout_of(self, asked_s: float | None) -> float | None:
        """The longest wait of a request with this timeout; 0 or less is no timeout."""
        if not self.can_override or asked_s is None or asked_s <= 0:
            return self.timeout_s
        return asked_s if self.timeout_s is None else min(asked_s, self.timeout_s)


@dataclass(frozen=True, slots=True)
class QueuePolicies:
    """The levels of one model and their policies."""

    default: QueuePolicy = QueuePolicy()
    by_level: Mapping[int, QueuePolicy] = field(default_factory=dict)  # instead of the default
    num_levels: int = 1
    default_level: int = 1

    def level_of(self, priority: int) -> int:
        """1 to `num_levels`; the default where a request names none, or one that is not there.

        Background requests have the level after the last.
        """
        if priority == BACKGROUND:
            return self.num_levels + 1
        return priority if 1 <= priority <= self.num_levels else self.default_level

    def level_behind(self, num_levels: int) -> int:
        """The level that many behind the first, which goes first; at most the last one."""
        return min(1 + num_levels, self.num_levels)

    def of(self, level: int) -> QueuePolicy:
        if self.is_background(level):
            return replace(self.default, timeout_s=None, max_wait_s=inf)
        return self.by_level.get(level, self.default)

    def is_background(self, level: int) -> bool:
        """Whether it is the level of background requests."""
        return level > self.num_levels
