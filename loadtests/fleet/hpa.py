"""`HorizontalAutoscaler`: how many replicas Kubernetes would want, by its published rules.

Pure. The algorithm of HorizontalPodAutoscaler v2 for one metric with an AverageValue target that is
summed over all replicas: ceil(sum / target), unless that is within the tolerance of what there is;
then the stabilisation windows, then the policies' limits, then least and most
(kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale).
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """A number of pods, or percent of them, that may come or go within a period."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class Direction:
    """The bounds of adding or removing replicas. The most permissive of several policies counts."""

    policies: tuple[ScalingPolicy, ...]
    window_s: float  # for which the least (up) or largest (down) recommendation counts


@dataclass(frozen=True, slots=True)
class Behavior:
    """The settings of a HorizontalPodAutoscaler, and the controller's tolerance."""

    up: Direction
    down: Direction
    least: int = 2
    most: int = 10
    tolerance: float = 0.1
    sync_s: float = 15.0  # between two evaluations

    def faster(self, factor: float) -> "Behavior":
        """The same with every duration that much shorter, for measuring in minutes."""

        def shorter(direction: Direction) -> Direction:
            policies = tuple(
                replace(policy, period_s=policy.period_s / factor) for policy in direction.policies
            )
            return Direction(policies, direction.window_s / factor)

        return replace(
            self, up=shorter(self.up), down=shorter(self.down), sync_s=self.sync_s / factor
        )


# What Kubernetes does where nothing is said, and what deploy/helm/attendant says.
KUBERNETES = Behavior(
    Direction((ScalingPolicy("Percent", 100, 15.0), ScalingPolicy("Pods", 4, 15.0)), 0.0),
    Direction((ScalingPolicy("Percent", 100, 15.0),), 300.0),
    least=1,
)
CHART = Behavior(
    Direction((ScalingPolicy("Percent", 100, 30.0), ScalingPolicy("Pods", 2, 30.0)), 0.0),
    Direction((ScalingPolicy("Percent", 10, 60.0), ScalingPolicy("Pods", 1, 60.0)), 300.0),
)


class HorizontalAutoscaler:
    """Remembers recommendations as long as a window, and changes as long as a period."""

    def __init__(self, behavior: Behavior, target: float) -> None:
        assert target > 0, "the target divides"
        self._behavior = behavior
        self._target = target
        self._recommended: deque[tuple[float, int]] = deque()
        self._changes: deque[tuple[float, int]] = deque()  # when, by how many

    def evaluate(self, now_s: float, current: int, total: float) -> int:
        """The number of replicas from now on, given the metric summed over all."""
        desired = self._limited(now_s, current, self._stable(now_s, current, total))
        if desired != current:
            self._changes.append((now_s, desired - current))
        return desired

    def _stable(self, now_s: float, current: int, total: float) -> int:
        raw = self._raw(current, total)
        up, down = self._behavior.up, self._behavior.down
        longest_s = max(up.window_s, down.window_s)
        while self._recommended and self._recommended[0][0] < now_s - longest_s:
            self._recommended.popleft()
        self._recommended.append((now_s, raw))
        at_least = min(n for at_s, n in self._recommended if at_s >= now_s - up.window_s)
        at_most = max(n for at_s, n in self._recommended if at_s >= now_s - down.window_s)
        return min(max(current, at_least), at_most)

    def _raw(self, current: int, total: float) -> int:
        ratio = total / (self._target * current)
        if abs(ratio - 1) <= self._behavior.tolerance:
            return current
        return math.ceil(total / self._target)

    def _limited(self, now_s: float, current: int, desired: int) -> int:
        behavior = self._behavior
        if desired > current:
            allowed = self._most_allowed(now_s, current, behavior.up.policies)
            desired = min(desired, max(allowed, current))
        elif desired < current:
            allowed = self._least_allowed(now_s, current, behavior.down.policies)
            desired = max(desired, min(allowed, current))
        return min(max(desired, behavior.least), behavior.most)

    def _most_allowed(self, now_s: float, current: int, policies: Sequence[ScalingPolicy]) -> int:
        def limit(policy: ScalingPolicy) -> int:
            before = self._before(now_s, current, policy.period_s)
            if policy.kind == "Pods":
                return before + policy.value
            return math.ceil(before * (1 + policy.value / 100))

        return max(limit(policy) for policy in policies)

    def _least_allowed(self, now_s: float, current: int, policies: Sequence[ScalingPolicy]) -> int:
        def limit(policy: ScalingPolicy) -> int:
            before = self._before(now_s, current, policy.period_s)
            if policy.kind == "Pods":
                return before - policy.value
            return int(before * (1 - policy.value / 100))

        return min(limit(policy) for policy in policies)

    def _before(self, now_s: float, current: int, period_s: float) -> int:
        """The number of replicas at the beginning of a period that ends now."""
        return current - sum(change for at_s, change in self._changes if at_s > now_s - period_s)


def num_flaps(at_s: Sequence[float], counts: Sequence[int], within_s: float) -> int:
    """The number of reversals of direction within `within_s`."""
    courses = pairwise(zip(at_s, counts, strict=True))
    changes = [
        (now_s, after - before) for (_, before), (now_s, after) in courses if after != before
    ]
    return sum(
        first * second < 0 and second_s - first_s < within_s
        for (first_s, first), (second_s, second) in pairwise(changes)
    )
