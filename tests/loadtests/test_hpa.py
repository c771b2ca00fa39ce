"""The autoscaler's rules, by the examples and defaults that Kubernetes publishes."""

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from loadtests.fleet.fleet_simulation import Service, simulate
from loadtests.fleet.hpa import (
    CHART,
    KUBERNETES,
    Behavior,
    Direction,
    HorizontalAutoscaler,
    ScalingPolicy,
    num_flaps,
)
from loadtests.load.arrivals import diurnal, steady, step

AT_ONCE = Direction((ScalingPolicy("Percent", 1_000_000, 15.0),), 0.0)
FREE = Behavior(AT_ONCE, AT_ONCE, least=1, most=1_000)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("current", "total", "desired"),
    [
        (1, 200.0, 2),  # twice the target: twice the replicas
        (4, 200.0, 2),  # half of it: half
        (10, 1_090.0, 10),  # within the tolerance of 0.1, both ways
        (10, 910.0, 10),
        (10, 1_110.0, 12),  # rounded up
        (10, 880.0, 9),
        (3, 0.0, 1),  # the least
        (1, 1e9, 1_000),  # the most
    ],
)
def test_ratio_of_metric_to_target_decides(current: int, total: float, desired: int) -> None:
    assert HorizontalAutoscaler(FREE, 100.0).evaluate(0.0, current, total) == desired


def test_default_policies_double_or_add_four_per_fifteen_seconds() -> None:
    scaler = HorizontalAutoscaler(KUBERNETES, 1.0)
    behavior_most = KUBERNETES.most
    assert behavior_most == 10
    assert scaler.evaluate(0.0, 1, 100.0) == 5  # 4 pods are more than 100 %
    assert scaler.evaluate(10.0, 5, 100.0) == 5  # the period is not over
    assert scaler.evaluate(15.0, 5, 100.0) == 10  # 100 % of 5


def test_going_down_takes_ten_percent_and_at_last_four_pods_a_minute() -> None:
    """Kubernetes' example: 80 replicas, Pods 4 and Percent 10 per minute: 72, then 8 more."""
    down = Direction((ScalingPolicy("Pods", 4, 60.0), ScalingPolicy("Percent", 10, 60.0)), 0.0)
    scaler = HorizontalAutoscaler(Behavior(AT_ONCE, down, least=10, most=80), 1.0)
    current, course = 80, []
    for minute in range(14):
        current = scaler.evaluate(minute * 60.0, current, 1.0)
        course.append(current)
    assert course[:4] == [72, 64, 57, 51]
    assert course[-3:] == [16, 12, 10]
    assert {before - after for before, after in pairwise(course[6:-1])} == {4}


def test_a_window_takes_the_largest_recommendation_before_going_down() -> None:
    down = Direction(AT_ONCE.policies, 300.0)
    scaler = HorizontalAutoscaler(Behavior(AT_ONCE, down, least=1, most=100), 1.0)
    assert scaler.evaluate(0.0, 10, 10.0) == 10
    assert scaler.evaluate(100.0, 10, 2.0) == 10
    assert scaler.evaluate(250.0, 10, 6.0) == 10
    assert scaler.evaluate(301.0, 10, 2.0) == 6  # the 10 has left the window, the 6 has not
    assert scaler.evaluate(551.0, 6, 2.0) == 2


def test_a_window_takes_the_least_recommendation_before_going_up() -> None:
    up = Direction(AT_ONCE.policies, 60.0)
    scaler = HorizontalAutoscaler(Behavior(up, AT_ONCE, least=1, most=100), 1.0)
    assert scaler.evaluate(0.0, 2, 2.0) == 2
    assert scaler.evaluate(30.0, 2, 9.0) == 2
    assert scaler.evaluate(61.0, 2, 5.0) == 5


def test_behavior_is_that_of_the_chart() -> None:
    """The chart's default values, which its own tests render."""
    values = yaml.safe_load((ROOT / "deploy/helm/attendant/values.yaml").read_text())
    behavior = values["autoscaling"]["behavior"]
    for name, direction in (("scaleUp", CHART.up), ("scaleDown", CHART.down)):
        rules = behavior[name]
        assert {
            ScalingPolicy(rule["type"], rule["value"], float(rule["periodSeconds"]))
            for rule in rules["policies"]
        } == set(direction.policies)
        assert rules["stabilizationWindowSeconds"] == direction.window_s
        assert rules["selectPolicy"] == "Max"


def test_flaps_are_changes_soon_after_those_of_the_other_direction() -> None:
    assert num_flaps([0, 10, 20, 30], [2, 4, 4, 3], within_s=30) == 1
    assert num_flaps([0, 10, 20, 60], [2, 4, 4, 3], within_s=30) == 0
    assert num_flaps([0, 10, 20, 30], [2, 3, 4, 5], within_s=30) == 0


SERVICE = Service()


def test_a_steady_load_keeps_its_replicas() -> None:
    """2,000/s need 10 replicas at capacity; the signal settles at some more, and stays."""
    course = simulate(SERVICE, CHART.faster(1), 9.0, steady(1_200), 1_200)
    assert course.num_flaps(CHART.down.window_s) == 0
    assert course.bad_share == 0
    assert 6 < course.replicas[-1] <= 10


def test_a_day_is_followed_without_a_late_answer() -> None:
    """An hour from 400 to 1,600/s and back: at most 10 replicas, and none refused or late."""
    course = simulate(SERVICE, CHART, 9.0, diurnal(400, 1_600, 3_600.0), 3_600.0)
    assert course.bad_share < 1e-3
    assert course.num_flaps(CHART.down.window_s) == 0
    assert max(course.replicas) >= 8 > min(course.replicas)


def test_a_step_beyond_capacity_is_late_until_replicas_have_started_and_then_recovers() -> None:
    course = simulate(SERVICE, CHART, 9.0, step(600, 1_400, 300.0), 1_200)
    bad_seconds = [second for second, bad in enumerate(course.bad) if bad]
    assert bad_seconds[0] >= 300
    # One scrape, one evaluation and one start are 75 s; doubling twice takes another period.
    assert bad_seconds[-1] < 300 + 75 + 45
    assert course.ordered[bad_seconds[-1]] > course.ordered[299]


def test_simulations_of_one_seed_are_the_same() -> None:
    first, again = (simulate(SERVICE, CHART, 9.0, steady(500), 60, seed=7) for _ in range(2))
    assert first == again
