"""A service of many replicas under a load, scaled by the autoscaler's rules: beyond one machine.

Pure and seeded. What is assumed: arrivals are Poisson and go to any replica that is ready, at
random, which is less even than taking turns; a replica answers `capacity` requests per second in
order, each `service_s` after its turn; it refuses what comes while `queue` wait; a new replica is
ready `start_s` after it was ordered and then as fast as the others; one that leaves answers what it
has. The metric, requests waiting and running in all replicas, is read every `scrape_s`, so that the
autoscaler sees one up to that old. Time goes in steps; requests of one step see the queue as it was
at its beginning.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from loadtests.fleet.hpa import Behavior, HorizontalAutoscaler, num_flaps
from loadtests.load.arrivals import Rate

USUAL_LOAD = 0.75  # of a replica's capacity


@dataclass(frozen=True, slots=True)
class Service:
    """One replica's capacity, and the objective."""

    capacity: float = 200.0  # requests per second
    service_s: float = 0.05
    queue: int = 64  # requests waiting
    slo_s: float = 0.3
    start_s: float = 45.0
    scrape_s: float = 15.0


@dataclass(slots=True)
class Course:
    """The events of each second."""

    replicas: list[int] = field(default_factory=list)  # ready
    in_flight: list[float] = field(default_factory=list)
    due: list[int] = field(default_factory=list)
    bad: list[float] = field(default_factory=list)  # refused, or later than promised
    ordered: list[int] = field(default_factory=list)  # replicas that the autoscaler ordered

    @property
    def bad_share(self) -> float:
        return sum(self.bad) / max(1, sum(self.due))

    def num_flaps(self, within_s: float) -> int:
        return num_flaps(range(len(self.ordered)), self.ordered, within_s)


def simulate(
    service: Service,
    behavior: Behavior,
    target: float,
    rate: Rate,
    duration_s: float,
    seed: int = 0,
    step_s: float = 0.1,
) -> Course:
    """Begins with as many replicas as the first rate needs at `USUAL_LOAD`."""
    generator = np.random.default_rng(seed)
    scaler = HorizontalAutoscaler(behavior, target)
    ordered = max(behavior.least, math.ceil(rate(0.0) / (service.capacity * USUAL_LOAD)))
    waiting = np.zeros(ordered)  # requests, by ready replica
    starting: list[float] = []  # when those that start are ready
    course, total, served_per_s = Course(), 0.0, rate(0.0)
    steps_per_second = round(1 / step_s)
    due = bad = 0.0
    for step in range(round(duration_s / step_s)):
        now_s = step * step_s
        num_ready = sum(at_s <= now_s for at_s in starting)
        waiting = np.concatenate([waiting, np.zeros(num_ready)])
        starting = [at_s for at_s in starting if at_s > now_s]
        arrived = generator.poisson(rate(now_s) * step_s)
        each = generator.multinomial(arrived, np.full(len(waiting), 1 / len(waiting)))
        admitted = np.minimum(each, np.maximum(service.queue - waiting, 0))
        is_late = waiting / service.capacity + service.service_s > service.slo_s
        due += arrived
        bad += float((each - admitted).sum() + admitted[is_late].sum())
        served = np.minimum(waiting + admitted, service.capacity * step_s)
        waiting = waiting + admitted - served
        served_per_s += 0.2 * (served.sum() / step_s - served_per_s)
        if _is_time(now_s, service.scrape_s, step_s):
            total = waiting.sum() + served_per_s * service.service_s  # Little's law
        if _is_time(now_s, behavior.sync_s, step_s):
            desired = scaler.evaluate(now_s, ordered, total)
            starting += [now_s + service.start_s] * (desired - ordered)
            num_leaving = max(0, ordered - desired)
            num_unborn = min(num_leaving, len(starting))  # those leave first
            starting = starting[: len(starting) - num_unborn]
            waiting = waiting[: max(1, len(waiting) - (num_leaving - num_unborn))]
            ordered = desired
        if (step + 1) % steps_per_second == 0:
            course.replicas.append(len(waiting))
            course.in_flight.append(float(waiting.sum() + served_per_s * service.service_s))
            course.due.append(int(due))
            course.bad.append(bad)
            course.ordered.append(ordered)
            due = bad = 0.0
    return course


def _is_time(now_s: float, every_s: float, step_s: float) -> bool:
    return now_s % every_s < step_s * 0.999
