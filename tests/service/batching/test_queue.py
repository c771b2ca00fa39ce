"""What one decision of the queue may and may not do. Time is a value here."""

from math import inf

import numpy as np
import pytest

from service.batching.limits import BatchLimits
from service.batching.queue import BatchQueue, Size
from service.batching.request import Item, Request
from service.contract.queue_policies import QueuePolicies, QueuePolicy
from service.errors import InvalidArgument, Overloaded
from service.records import Timings
from service.runtime.cost import CostCurve
from tests.fakes.sessions import up_to


def make(
    *lengths: int,
    num_rows: int = 1,
    deadline_s: float | None = None,
    queued_s: float = 0.0,
    shape_key: str | None = None,
    priority: int = 0,
    timeout_s: float | None = None,
) -> Request:
    """A request with one item per length."""
    timings = Timings(queued_s, queued_s=queued_s)
    request = Request(timings, deadline_s, priority, timeout_s)
    request.items = tuple(Item(request, {}, num_rows, n, shape_key) for n in lengths)
    return request


def queue_of(requests: list[Request], **limits: object) -> BatchQueue:
    queue = BatchQueue(BatchLimits(**limits))  # type: ignore[arg-type]
    for request in requests:
        queue.put(request)
    return queue


def lengths_of(batch: list[Item]) -> list[int]:
    return sorted(item.num_tokens for item in batch)


def test_an_empty_queue_gives_nothing_and_is_never_due() -> None:
    queue = BatchQueue(BatchLimits())
    assert queue.take(now_s=0.0) == ([], {})
    assert queue.due_s() is None
    assert len(queue) == queue.num_requests == queue.num_rows == queue.num_tokens == 0


def test_the_padded_cost_never_exceeds_the_token_budget() -> None:
    """Four texts of 30 and one of 50 tokens, budget 120: 4 x 30 fits, 3 x 50 does not."""
    queue = queue_of([make(30), make(30), make(50), make(30), make(30)], max_tokens=120)
    batch, _ = queue.take(0.0)
    assert lengths_of(batch) == [30, 30, 30, 30]
    batch, _ = queue.take(0.0)
    assert lengths_of(batch) == [50]


def test_a_budget_of_exactly_b_times_s_is_used_up() -> None:
    queue = queue_of([make(10) for _ in range(5)], max_tokens=50)
    batch, _ = queue.take(0.0)
    assert len(batch) == 5


def test_rows_never_exceed_the_limit() -> None:
    """Items of 3 rows under a limit of 8: two go together, not three."""
    queue = queue_of([make(1, num_rows=3) for _ in range(3)], max_rows=8)
    assert [len(queue.take(0.0)[0]) for _ in range(2)] == [2, 1]


def test_the_oldest_item_is_always_in_the_batch() -> None:
    """One long text before 40 short ones, which would fill a better batch without it."""
    oldest = make(500)
    queue = queue_of([oldest, *(make(5) for _ in range(40))])
    batch, _ = queue.take(0.0)
    assert oldest.items[0] in batch


def test_similar_lengths_go_together() -> None:
    """10s with 10s and 100s with 100s, though they arrived in turn."""
    queue = queue_of([make(length) for length in (10, 100) * 8], max_rows=8)
    batch, _ = queue.take(0.0)
    assert lengths_of(batch) == [10] * 8
    batch, _ = queue.take(0.0)
    assert lengths_of(batch) == [100] * 8


def test_a_larger_overhead_accepts_more_padding() -> None:
    """One of 10 and one of 20 tokens pay 40 together, 30 alone: worth it where a run costs 64."""
    assert len(queue_of([make(10), make(20)], cost=CostCurve(64)).take(0.0)[0]) == 2
    assert len(queue_of([make(10), make(20)], cost=CostCurve(0)).take(0.0)[0]) == 1


@pytest.mark.parametrize(
    ("cost", "max_cost"),
    [
        (CostCurve(), inf),
        (CostCurve(30.0, 1.0, 0.01), inf),
        (CostCurve(30.0, 0.0, 0.01), inf),
        (CostCurve(10.0, 0.5), 100.0),
    ],
    ids=["tokens", "attention", "packed", "bounded"],
)
def test_the_chosen_window_wastes_least_of_all_windows(cost: CostCurve, max_cost: float) -> None:
    """Against the definition written out, over 150 random queues, 50 of them of one length."""
    random = np.random.default_rng(0)
    for number in range(150):
        lengths = (1, 60) if number % 3 else (20, 21)
        count = 12 if number % 2 else int(random.integers(1, 5))
        sizes = [(int(random.integers(*lengths)), int(random.integers(1, 4))) for _ in range(count)]
        limits = BatchLimits(max_rows=9, max_tokens=200, cost=cost, max_cost=max_cost)
        requests = [make(length, num_rows=rows) for length, rows in sizes]
        queue = BatchQueue(limits)
        for request in requests:
            queue.put(request)
        batch, _ = queue.take(0.0)
        items = sorted((r.items[0] for r in requests), key=lambda item: item.num_tokens)
        anchor = items.index(requests[0].items[0])
        windows = [
            items[low : high + 1] for low in range(anchor + 1) for high in range(anchor, len(items))
        ]
        best = max(efficiency(window, limits) for window in windows)
        assert efficiency(batch, limits) == pytest.approx(best)


def efficiency(items: list[Item], limits: BatchLimits) -> float:
    """Useful cost per cost; -1 over a limit, or where padding costs more than runs saved."""
    cost = limits.cost
    rows, longest = sum(item.num_rows for item in items), max(item.num_tokens for item in items)
    real = sum(item.num_rows * item.num_tokens for item in items)
    work = cost.work(rows, longest, real)
    useful = sum(
        cost.work(item.num_rows, item.num_tokens, item.num_rows * item.num_tokens) for item in items
    )
    is_too_large = rows > limits.max_rows or rows * longest > limits.max_tokens
    is_too_large |= len(items) > 1 and cost.overhead + work > limits.max_cost
    if is_too_large or work - useful > (len(items) - 1) * cost.overhead + 1e-6:
        return -1.0
    return useful / (cost.overhead + work)


def test_only_equal_shape_keys_share_a_batch() -> None:
    queue = queue_of([make(1, shape_key=key) for key in "abababa"])
    assert {item.shape_key for item in queue.take(0.0)[0]} == {"a"}
    assert {item.shape_key for item in queue.take(0.0)[0]} == {"b"}
    assert len(queue) == 0


def test_items_of_one_request_may_run_in_different_batches() -> None:
    queue = queue_of([make(10, 400, 10)], max_rows=2)
    assert lengths_of(queue.take(0.0)[0]) == [10, 10]
    assert queue.num_requests == 1
    assert lengths_of(queue.take(0.0)[0]) == [400]
    assert queue.num_requests == 0


def test_items_of_no_rows_are_taken_like_others() -> None:
    """An empty tensor batch costs nothing, also where a run costs nothing."""
    queue = queue_of([make(1, num_rows=0), make(1, num_rows=2)], cost=CostCurve(0))
    with np.errstate(all="raise"):
        taken = [*queue.take(0.0)[0], *queue.take(0.0)[0]]
    assert sorted(item.num_rows for item in taken) == [0, 2]


def test_refusal_leaves_the_queue_as_it_was() -> None:
    queue = queue_of([make(1), make(1)], queue=up_to(2))
    before = repr(queue)
    with pytest.raises(Overloaded, match=r"^Exceeds maximum queue size$"):
        queue.put(make(1, 1))
    assert repr(queue) == before == "<BatchQueue 2 requests, 2 tokens>"
    assert len(queue) == 2
    queue.take(0.0)
    queue.put(make(1))
    assert queue.num_requests == 1


def test_waiting_tokens_are_bounded_padding_apart() -> None:
    """Bound 100: 60 + 40 wait, one token more is refused."""
    queue = queue_of([make(60), make(20, 20)], max_waiting_tokens=100)
    with pytest.raises(Overloaded):
        queue.put(make(1))
    assert queue.num_tokens == 100


def test_a_request_that_no_empty_queue_could_hold_is_wrong_not_early() -> None:
    """Told to come later, it would come for ever: 200 tokens, of which 100 may wait."""
    queue = queue_of([], max_waiting_tokens=100)
    with pytest.raises(
        InvalidArgument, match=r"200 tokens, the queue takes at most .* and 100 tokens"
    ):
        queue.put(make(*[50] * 4))
    queue.put(make(50, 50))
    with pytest.raises(Overloaded):
        queue.put(make(1))


def test_an_estimate_alone_is_never_refused_by_an_empty_queue() -> None:
    """Expected: 200 tokens of 100, and 20 rows of 10: such come in parts of half the queue.

    With more than that waiting both are refused.
    """
    queue = queue_of([], max_waiting_tokens=100, max_waiting_rows=10)
    queue.check_room(0.0, size=Size(1, 200))
    queue.check_room(0.0, size=Size(20, 1))
    queue.put(make(9, num_rows=5))
    queue.check_room(0.0, size=Size(20, 200))
    queue.put(make(6))
    for size in (Size(1, 200), Size(20, 1)):
        with pytest.raises(Overloaded, match=r"^Exceeds maximum queue size$"):
            queue.check_room(0.0, size=size)


def test_waiting_rows_are_bounded_too() -> None:
    """Bound 10: 6 + 4 rows wait; 1 more is refused, and 11 at once are wrong."""
    queue = queue_of([make(1, num_rows=6), make(1, 1, num_rows=2)], max_waiting_rows=10)
    with pytest.raises(Overloaded, match=r"^Exceeds maximum queue size$"):
        queue.put(make(1))
    queue.put(make(1, num_rows=0))
    with pytest.raises(
        InvalidArgument, match="11 rows and 11 tokens, the queue takes at most 10 rows"
    ):
        queue.put(make(1, num_rows=11))
    queue.take(0.0)
    assert queue.num_rows == 0


THREE_LEVELS = QueuePolicies(num_levels=3, default_level=2)


def test_levels_behind_the_first_are_counted_from_it_and_end_with_the_last() -> None:
    """As `Generate` counts, where 0 goes first; a level of its own is 1 to 3."""
    assert [THREE_LEVELS.level_behind(count) for count in (0, 1, 2, 9)] == [1, 2, 3, 3]


def test_each_level_has_room_of_its_own() -> None:
    """Two may wait on each level: the third of one is refused, and other levels are not."""
    policies = QueuePolicies(QueuePolicy(2), num_levels=2, default_level=1)
    queue = queue_of([make(1, priority=2), make(1, priority=2), make(1)], queue=policies)
    with pytest.raises(Overloaded):
        queue.check_room(0.0, 2)
    with pytest.raises(Overloaded):
        queue.put(make(1, priority=2))
    queue.put(make(1, priority=9))
    with pytest.raises(Overloaded):
        queue.check_room(0.0)


def test_the_first_level_goes_first_and_the_oldest_of_it() -> None:
    """Priority 0 and 7 are the default level, 2."""
    requests = [make(1, priority=priority) for priority in (3, 0, 1, 7, 1)]
    queue = queue_of(requests, queue=THREE_LEVELS, max_rows=1)
    order = [requests.index(queue.take(0.0)[0][0].request) for _ in requests]
    assert order == [2, 4, 1, 3, 0]


def test_lower_levels_fill_the_room_that_is_left() -> None:
    """7 rows: two of level 1 with 100 tokens are filled with rows that waste 16 at most, by level.

    Not the 101, which would make them longer, nor the 83.
    """
    leaders = [make(100, priority=1), make(100, priority=1)]
    company = [make(length, priority=3) for length in (101, 84, 83)] + [make(100) for _ in range(4)]
    queue = queue_of([*company, *leaders], queue=THREE_LEVELS, max_rows=7)
    batch, _ = queue.take(0.0)
    assert [item.request for item in batch] == [*leaders, *company[3:], company[1]]
    assert [item.num_tokens for item in queue.take(0.0)[0]] == [101]


def test_a_level_is_not_held_up_by_company_for_its_lower_ones() -> None:
    """Of level 1, 10 and 100 tokens; of level 3, seven of 10: the 100 comes before what is left."""
    urgent = [make(10, priority=1), make(100, priority=1)]
    queue = queue_of(
        [*(make(10, priority=3) for _ in range(7)), *urgent], queue=THREE_LEVELS, max_rows=4
    )
    assert [lengths_of(queue.take(0.0)[0]) for _ in range(3)] == [[10] * 4, [100], [10] * 4]


def test_a_timeout_ends_a_request_that_waits_when_it_is_reached() -> None:
    """A timeout of 5: came at 0 and 1, late at 5 and 6, `now` itself included."""
    policies = QueuePolicies(QueuePolicy(timeout_s=5.0))
    queue = BatchQueue(BatchLimits(queue=policies))
    first, second = make(1), make(1, queued_s=1.0)
    assert [queue.put(request) for request in (first, second)] == [5.0, 6.0]
    assert queue.expire(4.9) == {}
    (error,) = queue.expire(5.0).values()
    assert repr(error) == "TimedOut('Request timeout expired')"
    batch, late = queue.take(5.9)
    assert ([item.request for item in batch], late) == ([second], {})


def test_a_timeout_does_not_end_a_request_that_has_begun() -> None:
    queue = BatchQueue(BatchLimits(queue=QueuePolicies(QueuePolicy(timeout_s=5.0)), max_rows=1))
    request = make(1, 1)
    assert queue.put(request) == 5.0
    queue.take(0.0)
    batch, late = queue.take(6.0)
    assert ([item.request for item in batch], late) == ([request], {})


def test_who_may_be_late_goes_behind_those_of_its_level_only() -> None:
    """Level 1 delays; its late one goes after its other, and before level 2."""
    delaying = QueuePolicy(timeout_s=5.0, is_delaying=True)
    policies = QueuePolicies(QueuePolicy(), {1: delaying}, num_levels=2, default_level=1)
    queue = BatchQueue(BatchLimits(queue=policies, max_rows=1))
    lower, late, other = make(1, priority=2), make(1), make(1, queued_s=4.0)
    assert [queue.put(request) for request in (lower, late, other)] == [None] * 3
    order = [queue.take(6.0)[0][0].request for _ in range(3)]
    assert order == [other, late, lower]
    assert len(queue) == queue.num_requests == 0


def test_who_is_late_and_waits_still_counts_for_its_level() -> None:
    policy = QueuePolicy(max_requests=1, timeout_s=5.0, is_delaying=True)
    queue = queue_of([make(1)], queue=QueuePolicies(policy))
    assert queue.expire(6.0) == {}
    with pytest.raises(Overloaded):
        queue.put(make(1))
    queue.take_all()
    queue.put(make(1))


def test_a_deadline_counts_though_a_request_may_be_late() -> None:
    policy = QueuePolicy(timeout_s=1.0, is_delaying=True)
    request = make(1, deadline_s=5.0)
    queue = queue_of([request], queue=QueuePolicies(policy))
    assert queue.expire(2.0) == {}
    assert list(queue.expire(5.0)) == [request]


def test_a_delay_counts_from_the_oldest_of_any_level() -> None:
    requests = [make(1, queued_s=5.0, priority=3), make(1, queued_s=6.0, priority=1)]
    assert queue_of(requests, queue=THREE_LEVELS, max_delay_s=0.5).due_s() == 5.5


def test_a_tiny_text_does_not_drag_a_huge_one_along() -> None:
    """5 and 400 tokens at an overhead of 16: 816 paid together, 437 one after the other."""
    queue = queue_of([make(5), make(400)], cost=CostCurve(16))
    assert lengths_of(queue.take(0.0)[0]) == [5]


def test_a_batch_that_leaves_others_behind_does_not_wait_for_company() -> None:
    """Two rows of 512 fill a budget of 1,024: what comes could not join them."""
    queue = queue_of([make(512) for _ in range(3)], max_tokens=1_024, max_delay_s=1.0)
    assert queue.due_s() == 0.0


def test_a_deadline_that_is_reached_expires_its_request() -> None:
    """Deadlines 1, 2 and 3 at time 2: the first two are late, `now` itself included."""
    requests = [make(1, 1, deadline_s=float(n)) for n in (1, 2, 3)]
    queue = queue_of(requests)
    batch, late = queue.take(now_s=2.0)
    assert list(late) == requests[:2]
    assert {repr(error) for error in late.values()} == {"DeadlineExceeded('Deadline Exceeded')"}
    assert [item.request for item in batch] == [requests[2]] * 2
    assert queue.num_requests == queue.num_tokens == 0


def test_a_take_may_give_expired_requests_and_no_batch() -> None:
    request = make(1, deadline_s=1.0)
    batch, late = queue_of([request]).take(now_s=5.0)
    assert (batch, list(late)) == ([], [request])


def test_a_request_that_started_expires_with_what_is_left_of_it() -> None:
    request = make(10, 400, deadline_s=1.0)
    queue = queue_of([request], max_rows=1)
    queue.take(0.0)
    batch, late = queue.take(2.0)
    assert (batch, list(late)) == ([], [request])
    assert len(queue) == 0


def test_a_dropped_request_never_runs() -> None:
    first, second = make(1, 1), make(1)
    queue = queue_of([first, second])
    queue.drop(first)
    queue.drop(first)  # again: nothing of it waits
    batch, _ = queue.take(0.0)
    assert [item.request for item in batch] == [second]


def test_take_all_empties_the_queue() -> None:
    requests = [make(1, 2), make(3)]
    queue = queue_of(requests)
    assert queue.take_all() == requests
    assert len(queue) == queue.num_requests == queue.num_tokens == 0


def test_without_a_delay_a_batch_is_due_at_once() -> None:
    queue = queue_of([make(1, queued_s=5.0), make(1, queued_s=6.0)])
    assert queue.due_s() == 5.0


def test_a_delay_counts_from_the_oldest_request() -> None:
    """Queued at 5 and 6 with a delay of 0.5: due at 5.5."""
    queue = queue_of([make(1, queued_s=5.0), make(1, queued_s=6.0)], max_delay_s=0.5)
    assert queue.due_s() == 5.5


def test_a_full_batch_does_not_wait_for_the_delay() -> None:
    queue = queue_of([make(1, queued_s=5.0) for _ in range(3)], max_delay_s=0.5, max_rows=3)
    assert queue.due_s() == 5.0


def test_a_preferred_size_does_not_wait_for_the_delay() -> None:
    limits = {"max_delay_s": 0.5, "preferred_rows": (4, 8)}
    assert queue_of([make(1) for _ in range(3)], **limits).due_s() == 0.5
    assert queue_of([make(1) for _ in range(4)], **limits).due_s() == 0.0


def test_a_batch_is_cut_to_the_largest_preferred_size_it_reaches() -> None:
    """11 wait, 4 and 8 are preferred: 8 go, then the 3 that reach none."""
    queue = queue_of([make(1) for _ in range(11)], preferred_rows=(4, 8))
    assert [len(queue.take(0.0)[0]) for _ in range(2)] == [8, 3]


def test_cutting_to_a_preferred_size_keeps_the_oldest() -> None:
    """The longest of ten, and the oldest: all others sort before it."""
    oldest = make(12)
    queue = queue_of([oldest, *(make(11) for _ in range(9))], preferred_rows=(4,))
    batch, _ = queue.take(0.0)
    assert len(batch) == 4
    assert batch[0] is oldest.items[0]


def test_a_preferred_size_that_the_items_cannot_add_up_to_is_ignored() -> None:
    """Three items of 2 rows never make 5."""
    queue = queue_of([make(1, num_rows=2) for _ in range(3)], preferred_rows=(5,))
    assert len(queue.take(0.0)[0]) == 3


def test_only_the_oldest_candidates_are_looked_at() -> None:
    """Of 10 waiting, 4 are candidates; the rest wait though they would fit."""
    requests = [make(1) for _ in range(10)]
    queue = queue_of(requests, max_candidates=4)
    batch, _ = queue.take(0.0)
    assert [item.request for item in batch] == requests[:4]


def test_equal_lengths_leave_in_order_of_arrival() -> None:
    """16 alike under 8 rows: no later one goes before an earlier one."""
    requests = [make(7) for _ in range(16)]
    queue = queue_of(requests, max_rows=8)
    assert [item.request for item in queue.take(0.0)[0]] == requests[:8]


@pytest.mark.parametrize(("lengths", "num_rows"), [((11,), 1), ((1,), 5)])
def test_an_item_that_no_batch_could_hold_is_our_own_mistake(
    lengths: tuple[int, ...], num_rows: int
) -> None:
    queue = BatchQueue(BatchLimits(max_rows=4, max_tokens=10))
    with pytest.raises(AssertionError, match="no batch could hold it"):
        queue.put(make(*lengths, num_rows=num_rows))
