"""What counts as answered, good and lost, and that tallies add up."""

import pytest

from loadtests.load.scenario import Load, Slo, Traffic
from loadtests.load.tally import NO_LOSS, Sample, Tally, is_good_answer
from loadtests.load.workloads import LEFT, OK, WRONG, Reply

LOAD = Load(seconds=10, warm_up_s=0)
TRAFFIC = Traffic(model="m")


def answer(latency_s: float, *chunks: tuple[float, int], status: str = OK) -> Sample:
    return Sample(1.0, 1.0, 1.0 + latency_s, Reply(status, [(1 + at, n) for at, n in chunks]))


TOKENS = [(0.1, 1), (0.2, 2), (0.4, 2)]  # first after 0.1 s, then 4 in 0.3 s: 75 ms each


@pytest.mark.parametrize(
    ("slo", "sample", "is_good"),
    [
        (Slo(), answer(5.0), True),
        (Slo(latency_ms=100), answer(0.0999), True),
        (Slo(latency_ms=100), answer(0.1001), False),
        (Slo(), answer(0.0, status="RESOURCE_EXHAUSTED"), False),
        (Slo(), answer(0.0, status=LEFT), False),
        (Slo(), answer(0.0, status=WRONG), False),
        (Slo(first_token_ms=110, inter_token_ms=80), answer(0.4, *TOKENS), True),
        (Slo(first_token_ms=90), answer(0.4, *TOKENS), False),
        (Slo(inter_token_ms=70), answer(0.4, *TOKENS), False),
        (Slo(latency_ms=300, first_token_ms=110), answer(0.4, *TOKENS), False),
        (Slo(inter_token_ms=1), answer(0.1, (0.1, 1)), True),  # nothing between
    ],
)
def test_an_answer_is_good_within_every_bound(slo: Slo, sample: Sample, is_good: bool) -> None:
    assert is_good_answer(sample, slo) is is_good


def test_refusals_are_not_among_latencies_and_those_who_left_are_not_lost() -> None:
    tally = Tally(LOAD, Slo(latency_ms=100))
    statuses = (OK, OK, LEFT, "UNAVAILABLE", "DEADLINE_EXCEEDED", WRONG)
    for status in statuses:
        tally.record(TRAFFIC, answer(0.05, status=status))
    total = tally.total
    assert (total.latency.count, total.num_good, total.num_lost) == (2, 2, 3)
    assert total.num_sent == len(statuses)
    assert tally.good_share == pytest.approx(2 / 5)
    assert NO_LOSS == (OK, LEFT)


def test_a_slow_reader_is_judged_by_what_it_got() -> None:
    tally = Tally(LOAD, Slo(inter_token_ms=1))
    tally.record(TRAFFIC, answer(0.4, *TOKENS))
    tally.record(Traffic(model="m", read_pause_ms=100), answer(0.4, *TOKENS))
    assert tally.total.num_good == 1


def test_tokens_that_come_together_share_the_time_since_those_before() -> None:
    tally = Tally(LOAD, Slo())
    tally.record(TRAFFIC, answer(0.4, *TOKENS))
    total = tally.total
    assert total.num_tokens == 5
    assert total.first_token.max_s == pytest.approx(0.1)
    assert total.inter_token.count == 4
    assert total.inter_token.percentile_s(50) == pytest.approx(0.05, rel=1e-3)
    assert total.inter_token.percentile_s(100) == pytest.approx(0.1, rel=1e-3)


def test_tallies_of_workers_add_up_to_that_of_one() -> None:
    samples = [answer(number / 100, (number / 200, 1)) for number in range(1, 21)]
    whole, parts = Tally(LOAD, Slo()), [Tally(LOAD, Slo()) for _ in range(3)]
    for number, sample in enumerate(samples):
        traffic = Traffic(model="ab"[number % 2])
        whole.record(traffic, sample)
        parts[number % 3].record(traffic, sample)
    together = Tally(LOAD, Slo())
    for part in parts:
        together.add(part)
    assert together.total.latency.counts == whole.total.latency.counts
    assert together.num_answers_in_time == whole.num_answers_in_time == 20
    assert {title: part.statuses for title, part in together.by_traffic.items()} == {
        title: part.statuses for title, part in whole.by_traffic.items()
    }
    assert together.by_second[1].first_token.counts == whole.by_second[1].first_token.counts
