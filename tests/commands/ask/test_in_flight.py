"""Requests in flight: in order, within bounds, halved where refused, asked again where full."""

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from commands.ask.client.refusal import CallError
from commands.ask.in_flight import (
    REQUEST_TEXTS,
    REQUESTS_IN_FLIGHT,
    Answered,
    InFlight,
    Refused,
)
from commands.ask.lines import GivenTexts
from tests.fakes.sessions import PATIENCE_S


class FakeServer:
    """Answers texts by their lengths; refuses requests with a text of its choice."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.requests: list[list[str]] = []
        self.lock = threading.Lock()
        self.num_at_once = self.most_at_once = 0

    def __call__(self, texts: Sequence[str]) -> list[int]:
        with self.lock:
            self.requests.append(list(texts))
            self.num_at_once += 1
            self.most_at_once = max(self.most_at_once, self.num_at_once)
        time.sleep(0.002 * (len(self.requests) % 3))  # later requests are done before earlier ones
        with self.lock:
            self.num_at_once -= 1
        if self.refused.intersection(texts):
            raise CallError("INVALID_ARGUMENT", "a text is refused")
        return [len(text) for text in texts]


def answers_of(
    server: Callable[[Sequence[str]], list[int]], texts: Sequence[str]
) -> dict[int, int | str]:
    """What became of each text, by number, in the order in which it is told."""
    found: dict[int, int | str] = {}
    with InFlight(GivenTexts(texts), server, PATIENCE_S) as in_flight:
        for part in (part for parts in in_flight for part in parts):
            if isinstance(part, Refused):
                found[part.line.number] = part.reason
            else:
                numbers = [line.number for line in part.lines]
                found |= dict(zip(numbers, part.response, strict=True))
    return found


def test_answers_come_in_order_from_several_requests_at_once() -> None:
    server, texts = FakeServer(), ["x" * (index % 7) for index in range(1_500)]
    found = answers_of(server, texts)
    assert list(found) == [*range(1, 1_501)]
    assert list(found.values()) == [len(text) for text in texts]
    assert max(map(len, server.requests)) == REQUEST_TEXTS
    assert 1 < server.most_at_once <= REQUESTS_IN_FLIGHT


def test_no_more_is_asked_than_is_read() -> None:
    """One answer of 782 is read: beside it, the requests in flight and those that wait."""
    server, texts = FakeServer(), GivenTexts(["x"] * 50_000)
    with InFlight(texts, server, PATIENCE_S) as in_flight:
        next(iter(in_flight))
        time.sleep(0.2)
        assert len(server.requests) <= 2 * REQUESTS_IN_FLIGHT + 1


def test_only_texts_that_are_refused_have_no_answer() -> None:
    """Three of 200; each refused request is asked again in halves, 64 texts take at most 13."""
    texts = [f"text {index}" for index in range(200)]
    server = FakeServer(texts[3], texts[4], texts[199])
    found = answers_of(server, texts)
    assert list(found) == [*range(1, 201)]
    refused = [number for number, answer in found.items() if answer == "a text is refused"]
    assert refused == [4, 5, 200]
    assert len(server.requests) < 4 + 3 * 13


@pytest.mark.parametrize("status", ["NOT_FOUND", "UNAVAILABLE", "INTERNAL"])
def test_what_is_wrong_with_all_requests_ends_it(status: str) -> None:
    asked: list[int] = []  # texts of each request

    def ask(texts: Sequence[str]) -> list[int]:
        asked.append(len(texts))
        raise CallError(status, "")

    with pytest.raises(CallError):
        answers_of(ask, ["a"] * 100)
    assert len(asked) <= 2, "it asked again"


def test_a_full_server_is_asked_again_and_one_that_is_away_where_it_was_there() -> None:
    """Three refusals that say when to come back, and two after the first answer."""
    refusals = [CallError("RESOURCE_EXHAUSTED", "", retry_after_s=0.001)] * 3
    refusals += [CallError("UNAVAILABLE", "")] * 2
    lock = threading.Lock()
    num_answered = 0

    def ask(texts: Sequence[str]) -> list[int]:
        nonlocal num_answered
        with lock:
            if refusals and (num_answered or refusals[0].retry_after_s):
                raise refusals.pop(0)
            num_answered += 1
        return [len(text) for text in texts]

    assert len(answers_of(ask, ["a"] * 400)) == 400
    assert not refusals


def test_a_server_that_stays_full_ends_it_when_patience_ends() -> None:
    def ask(_: Sequence[str]) -> list[int]:
        raise CallError("RESOURCE_EXHAUSTED", "full", retry_after_s=0.01)

    with InFlight(GivenTexts(["a"]), ask, patience_s=0.3) as in_flight, pytest.raises(CallError):
        list(in_flight)


def test_the_parts_of_a_request_are_in_the_order_of_its_texts() -> None:
    texts = ["ok", "\udcff", "no", "fine"]
    with InFlight(GivenTexts(texts), FakeServer("no"), PATIENCE_S) as in_flight:
        ((first, *rest),) = in_flight
    assert isinstance(first, Answered)
    assert [part.first.number for part in (first, *rest)] == [1, 2, 3, 4]
