"""The errors of the domain. Knows nothing of gRPC or HTTP.

    AttendantError
    ├── InvalidArgument    the request can never succeed as it is
    │   ├── InputTooLong   a text or a prompt has more tokens than the model takes
    │   └── NoChatTemplate the model makes no prompts of conversations
    ├── NotFound           no such model or version
    ├── AlreadyExists      the name is taken
    ├── WrongTask          the model exists and does something else
    ├── Unimplemented      understood, and not offered
    ├── Overloaded         a bound is reached: the same request may succeed later
    │   └── WaitTooLong    the wait to expect is longer than the queue's bound
    │       └── TooEarly   the deadline is earlier than the answer to expect
    ├── DeadlineExceeded   the deadline passed before the answer was there
    │   └── TooLate        an admitted request can no longer be computed by its deadline
    ├── TimedOut           the request waited longer than its queue's policy lets it
    ├── Unavailable        the server is starting, or draining
    ├── ModelFailed        the session raised while computing
    │   ├── OutOfMemory    a run needed more memory than its device has left
    │   └── DeviceFailed   the device is lost: no run of this process will succeed on it
    ├── RegionFailed       a region of shared memory cannot be opened, read or written
    ├── LoadError          a model of the repository cannot be served
    │   └── SharesNoRuns   a batch size is stated for a graph whose runs have one request each
    └── SettingError       a setting has a value it cannot have

Each front has one table from these to its statuses: `rpc/status.py` is gRPC's.
"""

import traceback
from typing import Literal

WaitBound = Literal["wait", "deadline"]
_WAIT_TEXTS: dict[WaitBound, str] = {
    "wait": "The queue is too long: the expected wait is {:.3f} s, the limit is {:.3f} s",
    "deadline": "The deadline is too early: the answer is expected in {:.3f} s, {:.3f} s are left",
}


MAX_CHARACTERS = 8_192  # of an error's text: a name that a client sends may have millions


def shortened(text: str) -> str:
    """A text of at most about `MAX_CHARACTERS`: of a longer one, its beginning and its end."""
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]} ({len(text) - 2 * half} characters are left out here) {text[-half:]}"


class AttendantError(Exception):
    """Every error that has an answer of its own."""

    def __str__(self) -> str:
        return shortened(super().__str__())


class InvalidArgument(AttendantError):
    """The request can never succeed as it is; `field` is the one at fault, where it is one.

    `logged` is for logs and traces, where the text has parts of the request.
    """

    def __init__(self, text: str, field: str | None = None, logged: str | None = None) -> None:
        super().__init__(text)
        self.field = field
        self.logged = logged


class InputTooLong(InvalidArgument):
    """A text or a prompt has more tokens than the model takes."""


class NoChatTemplate(InvalidArgument):
    """The model makes no prompts of conversations."""


def invalid_field(field: str, text: str) -> InvalidArgument:
    """The error of a field, whose name begins the text."""
    return InvalidArgument(f"{field} {text}", field)


class NotFound(AttendantError):
    """No such model or version."""


class AlreadyExists(AttendantError):
    """The name is taken."""


class WrongTask(AttendantError):
    """The model exists and does something else."""


class Unimplemented(AttendantError):
    """Understood, and not offered."""


class Overloaded(AttendantError):
    """A bound is reached: the same request may succeed later."""


class WaitTooLong(Overloaded):
    """The wait to expect is longer than the queue's bound."""

    bound: WaitBound = "wait"

    def __init__(self, expected_s: float, limit_s: float) -> None:
        super().__init__(_WAIT_TEXTS[self.bound].format(expected_s, limit_s))
        self.excess_s = expected_s - limit_s


class TooEarly(WaitTooLong):
    """A request is refused for its deadline, which is earlier than the answer to expect."""

    bound: WaitBound = "deadline"


class DeadlineExceeded(AttendantError):
    """The deadline passed before the answer was there."""


class TooLate(DeadlineExceeded):
    """An admitted request can no longer be computed by its deadline."""

    def __init__(self, expected_s: float, left_s: float) -> None:
        super().__init__(
            f"Deadline Exceeded: {expected_s:.3f} s are needed to compute what is left of the "
            f"request, {left_s:.3f} s are left"
        )


class TimedOut(AttendantError):
    """The request waited longer than its queue's policy lets it."""


class Unavailable(AttendantError):
    """The server is starting, or draining."""


class ModelFailed(AttendantError):
    """The session raised while computing."""


class OutOfMemory(ModelFailed):
    """A run needed more memory than its device has left; others may succeed."""


class DeviceFailed(ModelFailed):
    """The device is lost: no run of this process will succeed on it."""


class RegionFailed(AttendantError):
    """A region of shared memory cannot be opened, read or written."""


class LoadError(AttendantError):
    """A model of the repository cannot be served."""


class SharesNoRuns(LoadError):
    """A batch size is stated for a graph whose runs have one request each."""


class SettingError(AttendantError):
    """A setting has a value it cannot have."""


def forget_frames(error: BaseException) -> None:
    """Let go of what the functions had in hand that an error came through, whole messages often.

    For errors that are kept by what they came through, such as a future or a call: only the
    garbage collector would find that cycle, much later. Nothing of the error is left but its text.
    """
    reached: list[BaseException | None] = [error]
    while reached:
        each = reached.pop()
        if each is not None:
            reached += (each.__cause__, each.__context__)
            if isinstance(each, BaseExceptionGroup):
                reached += each.exceptions
            traceback.clear_frames(each.__traceback__)
            each.__traceback__ = each.__cause__ = each.__context__ = None
