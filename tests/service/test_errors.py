"""What errors keep, and what they say in numbers."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator

import pytest

from service.errors import (
    MAX_CHARACTERS,
    AttendantError,
    ByKind,
    InputTooLong,
    InvalidArgument,
    LacksKind,
    LoadError,
    NotFound,
    Remedy,
    WaitTooLong,
    forget_frames,
)


class Message:
    """What a function has in hand when it fails."""


Failure = Callable[[list["weakref.ref[Message]"]], BaseException]


def failing(messages: list["weakref.ref[Message]"], text: str = "failed") -> None:
    message = Message()
    messages.append(weakref.ref(message))
    raise ValueError(text)


def caught(messages: list["weakref.ref[Message]"], text: str = "failed") -> ValueError:
    try:
        failing(messages, text)
    except ValueError as error:
        return error
    raise AssertionError


def raised(error: Exception, cause: Exception) -> None:
    raise error from cause


def with_a_cause(messages: list["weakref.ref[Message]"]) -> RuntimeError:
    try:
        raised(RuntimeError(), caught(messages))
    except RuntimeError as error:
        return error
    raise AssertionError


def while_handling(messages: list["weakref.ref[Message]"]) -> BaseException:
    try:
        try:
            failing(messages)
        finally:
            failing(messages)
    except ValueError as error:
        return error
    raise AssertionError


def in_a_group(messages: list["weakref.ref[Message]"]) -> BaseException:
    """Of two errors, and raised from a third."""
    members = [caught(messages), with_a_cause(messages)]
    try:
        raised(ExceptionGroup("several", members), caught(messages))
    except ExceptionGroup as error:
        return error
    raise AssertionError


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("fail", [caught, with_a_cause, while_handling, in_a_group])
def test_nothing_that_a_failed_call_had_in_hand_is_kept_by_its_error(fail: Failure) -> None:
    """Without a run of the garbage collector, though the error itself is kept."""
    messages: list[weakref.ref[Message]] = []
    error = fail(messages)
    assert messages
    assert all(message() for message in messages), "an error keeps what its functions had"
    forget_frames(error)
    assert not any(message() for message in messages)
    assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)


@pytest.mark.usefixtures("without_collector")
def test_nothing_is_kept_by_a_traceback_that_another_one_holds() -> None:
    messages: list[weakref.ref[Message]] = []
    error = caught(messages)
    traceback = error.__traceback__
    forget_frames(error)
    assert traceback is not None
    assert not any(message() for message in messages)


def test_the_text_of_an_error_stays() -> None:
    error = caught([], "the text")
    forget_frames(error)
    assert str(error) == "the text"


def test_a_wait_that_is_too_long_is_stated_with_its_limit() -> None:
    error = WaitTooLong(1.5, 1.0)
    assert "1.500 s" in str(error)
    assert "1.000 s" in str(error)
    assert (error.excess_s, error.bound) == (0.5, "wait")


@pytest.mark.parametrize("kind", [AttendantError, InvalidArgument, NotFound, LoadError])
def test_a_long_text_is_answered_by_its_beginning_and_its_end(kind: type[AttendantError]) -> None:
    """A name of a million characters does not come back whole; one of a thousand does."""
    assert str(kind("a" * 1_000)) == "a" * 1_000
    text = str(kind(f"no model {'x' * 1_000_000}: see the list"))
    assert text.startswith("no model xxx")
    assert text.endswith("xxx: see the list")
    assert len(text) < MAX_CHARACTERS + 100
    assert "characters are left out here" in text


TOO_LONG = InvalidArgument(
    "has 9 tokens: shorten it",
    "text_pairs[3]",
    subject="text 3",
    beside="texts[3]",
    remedy="truncate",
)


@pytest.mark.parametrize(
    ("names", "remedies", "text", "field"),
    [
        ({}, {}, "text_pairs[3] with its texts has 9 tokens: shorten it", "text_pairs"),
        (
            {"texts": "queries", "text_pairs": "items"},
            {"truncate": ", or cut it"},
            "items[3] with its queries has 9 tokens: shorten it, or cut it",
            "items",
        ),
        (
            {"texts[]": "inputs", "text_pairs[]": "inputs"},
            {},
            "inputs has 9 tokens: shorten it",
            "inputs",
        ),
        ({"texts": "inputs", "text_pairs": "inputs"}, {}, "inputs[3] has 9", "inputs"),
        ({"text_pairs[3]": "a.b[1].c"}, {}, "a.b[1].c with its texts has 9", "a.b[1].c"),
    ],
    ids=["none", "both", "one alone", "one list", "whole path"],
)
def test_an_error_has_the_names_and_the_remedies_of_a_front(
    names: dict[str, str], remedies: dict[Remedy, str], text: str, field: str
) -> None:
    named = TOO_LONG.named(names, remedies)
    assert (str(named)[: len(text)], named.field) == (text, field)
    assert str(TOO_LONG) == "text 3 has 9 tokens: shorten it, or ask for truncation"


@pytest.mark.parametrize("field", ["max_tokens", "sampling.max_tokens", "max_tokens[2]"])
def test_a_sentence_that_begins_with_its_path_has_it_as_its_subject(field: str) -> None:
    named = InvalidArgument(f"{field} is 0", field).named({"max_tokens": "length"}, {})
    assert str(named) == f"{field.replace('max_tokens', 'length', field.startswith('max'))} is 0"
    other = InvalidArgument("the prompt is empty", "prompt").named({"prompt": "inputs"}, {})
    assert (str(other), other.field) == ("the prompt is empty", "inputs")


@pytest.mark.parametrize("error", [TOO_LONG, LacksKind("sparse", ["dense"])])
def test_a_copy_of_an_error_says_the_same(error: InvalidArgument) -> None:
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - its own
        assert (type(other), str(other), other.field) == (type(error), str(error), error.field)


def test_a_kind_without_a_value_of_its_own_has_that_of_the_kind_it_is_of() -> None:
    values = ByKind({InvalidArgument: 1, InputTooLong: 2, Exception: 3})
    late = type("Late", (InvalidArgument,), {})
    assert [values[late], values[InputTooLong], values[KeyError]] == [1, 2, 3]
    with pytest.raises(KeyError):
        _ = values[BaseException]
