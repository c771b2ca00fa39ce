"""Prices of runs, and the requests refused by them: all in virtual time."""

from dataclasses import replace
from math import inf

import pytest

from service.batching.limits import BatchLimits
from service.batching.queue import BatchQueue, Size
from service.batching.request import Item, Request
from service.contract.queue_policies import QueuePolicies, QueuePolicy
from service.errors import TooLate, WaitTooLong
from service.records import Timings
from service.runtime.cost import CostCurve
from service.runtime.pace import MIN_RUNS, Pace, Trust, Work

COST = CostCurve(10.0, 1.0, 0.0, 0.01)  # a run of 10 tokens takes 0.2 s
LIMITS = BatchLimits(max_rows=1, cost=COST, run_cost=COST)


def make(
    now_s: float, deadline_s: float | None = None, num_texts: int = 1, priority: int = 0
) -> Request:
    request = Request(Timings(now_s, queued_s=now_s), deadline_s, priority)
    request.items = tuple(Item(request, {}, 1, 10) for _ in range(num_texts))
    return request


def busy(limits: BatchLimits = LIMITS) -> BatchQueue:
    """A queue whose only run has just begun, of 0.2 s."""
    queue = BatchQueue(limits)
    queue.put(make(0.0))
    queue.begin(queue.take(0.0)[0], 0.0)
    return queue


def test_a_request_that_would_be_answered_after_its_deadline_is_refused_when_it_comes() -> None:
    """0.2 s are under way and 0.2 s wait: the third needs 0.6 s, and a tenth is kept."""
    queue = busy()
    queue.put(make(0.0))
    before = repr(queue)
    text = r"the answer is expected in 0\.667 s, 0\.650 s are left$"
    with pytest.raises(WaitTooLong, match=text) as caught:
        queue.put(make(0.0, deadline_s=0.65))
    assert caught.value.bound == "deadline"
    assert repr(queue) == before
    queue.put(make(0.0, deadline_s=0.7))
    queue.put(make(0.0))


def test_a_request_that_would_wait_longer_than_its_queue_lets_it_is_refused() -> None:
    """At most 0.5 s: one waits 0.2 s and one 0.4 s; the next would wait 0.6 s."""
    queue = busy(replace(LIMITS, queue=QueuePolicies(QueuePolicy(max_wait_s=0.5))))
    queue.put(make(0.0))
    queue.put(make(0.0))
    text = r"^The queue is too long: the expected wait is 0\.600 s, the limit is 0\.500 s$"
    with pytest.raises(WaitTooLong, match=text) as caught:
        queue.put(make(0.0))
    assert caught.value.bound == "wait"
    assert caught.value.excess_s == pytest.approx(0.1)
    with pytest.raises(WaitTooLong):
        queue.check_room(0.0, size=Size(1, 10))
    queue.put(make(0.15))  # meanwhile the run is nearly over


def test_while_a_run_is_free_nothing_is_refused_for_its_price() -> None:
    """However early its deadline: prices that are too high must be found out."""
    queue = BatchQueue(LIMITS)
    queue.put(make(0.0, deadline_s=0.01))
    batch, late = queue.take(0.0)
    assert len(batch) == 1
    assert not late


def test_a_queue_that_knows_no_prices_refuses_nothing_for_its_wait() -> None:
    queue = busy(replace(LIMITS, run_cost=CostCurve(10.0)))
    for _ in range(100):
        queue.put(make(0.0, deadline_s=0.01))


def test_only_what_goes_first_counts_as_waiting_ahead() -> None:
    """Ten of the second level wait for 2 s: one of the first waits for the run under way."""
    policies = QueuePolicies(QueuePolicy(max_wait_s=10.0), num_levels=2, default_level=2)
    queue = busy(replace(LIMITS, queue=policies))
    for _ in range(10):
        queue.put(make(0.0))
    with pytest.raises(WaitTooLong):
        queue.put(make(0.0, deadline_s=0.5))
    queue.put(make(0.0, deadline_s=0.5, priority=1))


def test_what_can_no_longer_be_done_ends_before_it_is_computed() -> None:
    """The run took 0.5 s instead of 0.2 s: of those that wait, one has 0.05 s left for 0.2 s."""
    queue = BatchQueue(LIMITS)
    queue.put(make(0.0))
    run = queue.begin(queue.take(0.0)[0], 0.0)
    hopeless, other = make(0.0, deadline_s=0.55), make(0.0)
    queue.put(hopeless)
    queue.put(other)
    queue.end(run, 0.5)
    batch, late = queue.take(0.5)
    assert list(late) == [hopeless]
    assert isinstance(late[hopeless], TooLate)
    assert [item.request for item in batch] == [other]
    assert not len(queue)


def test_of_a_request_that_has_begun_the_rest_is_dropped_when_it_gets_too_late() -> None:
    """Two texts, one computed: the other needs 0.2 s, and 0.1 s are left."""
    queue = BatchQueue(LIMITS)
    begun, other = make(0.0, deadline_s=0.6, num_texts=2), make(0.0)
    queue.put(begun)
    queue.put(other)
    run = queue.begin(queue.take(0.0)[0], 0.0)
    queue.end(run, 0.5)
    batch, late = queue.take(0.5)
    assert list(late) == [begun]
    assert [item.request for item in batch] == [other]


def test_the_last_that_waits_is_computed_though_it_seems_too_late() -> None:
    queue = busy()
    last = make(0.0, deadline_s=0.5)
    queue.put(last)
    batch, late = queue.take(0.45)
    assert [item.request for item in batch] == [last]
    assert not late


def test_prices_are_learned_from_runs() -> None:
    """Runs of 1 and of 9 units at 0.1 s a unit and no overhead, where ten units were thought."""
    pace, now_s = Pace(CostCurve(10.0), 1), 0.0
    for number in range(200):
        assert pace.is_known == (number >= MIN_RUNS)
        amount = 9.0 if number % 2 else 1.0
        run = pace.begin(Work(1, amount), now_s)
        now_s += 0.1 * amount
        pace.end(run, now_s)
    assert pace.price_s(Work(1, 9.0)) == pytest.approx(0.9, rel=0.1)
    assert pace.price_s(Work(1, 1.0)) == pytest.approx(0.1, rel=0.5)


def test_one_slow_run_changes_prices_little() -> None:
    """A hundred times as long as usual: the next is thought to take 1.25 times as long."""
    pace = Pace(COST, 1)
    run = pace.begin(Work(1, 10.0), 0.0)
    pace.end(run, 20.0)
    assert pace.price_s(Work(1, 10.0)) == pytest.approx(0.25)


def test_runs_at_once_are_counted_by_their_shares() -> None:
    """Two of 0.2 s that share a machine take 0.4 s: the price stays; a failed one says nothing."""
    pace = Pace(COST, 2)
    first, second = pace.begin(Work(1, 10.0), 0.0), pace.begin(Work(1, 10.0), 0.0)
    assert pace.left_s(0.2) == pytest.approx(0.2)
    pace.end(first, 0.4)
    second.is_sound = False
    pace.end(second, 9.0)
    assert pace.price_s(Work(1, 10.0)) == pytest.approx(0.2)


@pytest.mark.parametrize(("took_s", "is_late"), [(0.89, False), (0.91, True), (inf, True)])
def test_an_answer_before_its_deadline_makes_no_expectation_longer(
    took_s: float, is_late: bool
) -> None:
    """0.4 s were expected and 1 s is left: only the last tenth of it counts as late."""
    queue = busy()
    request = make(0.0, deadline_s=1.0)
    queue.put(request)
    assert request.timings.expected_s == pytest.approx(0.4)
    queue.answered(request, took_s)
    assert (queue._backlog.trust.factor > 1) == is_late


def test_answers_that_take_longer_than_expected_are_expected_to() -> None:
    trust = Trust()
    for _ in range(200):
        trust.answered(1.0, 1.5)
    assert 1.4 < trust.factor < 1.8
    for _ in range(2_000):
        trust.answered(1.0, 0.9)
    assert trust.factor == 1.0


def test_answers_that_are_late_together_raise_the_factor_by_so_much_at_most() -> None:
    """A stall makes a hundred late; as many that were admitted after it raise it by half again."""
    trust = Trust(max_rise=1.5)
    for _ in range(100):
        trust.add(is_late=True, admitted_with=1.0)
    assert trust.factor == pytest.approx(1.5)
    for _ in range(100):
        trust.add(is_late=True, admitted_with=1.5)
    assert trust.factor == pytest.approx(2.25)
    trust.add(is_late=True, admitted_with=1.0)
    assert trust.factor == pytest.approx(2.25)
    trust.add(is_late=False, admitted_with=1.0)
    assert trust.factor < 2.25
