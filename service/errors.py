"""The errors of the domain. Knows nothing of gRPC or HTTP.

    AttendantError
    ├── InvalidArgument    the request can never succeed as it is
    │   ├── InputTooLong   a text or a prompt has more tokens than the model takes
    │   ├── LacksKind      an embedder has no vectors of a kind
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
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Literal, Self, TypeVar

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


Remedy = Literal["", "truncate", "tokenizer"]
# The end of an error's text by what may mend its request; fronts have words of their own.
REMEDIES: dict[Remedy, str] = {"truncate": ", or ask for truncation"}


class InvalidArgument(AttendantError):
    """The request can never succeed as it is.

    `field` is the path of the value at fault in the request's record (`texts[3]`), where it is one,
    and `beside` that of a value which is read together with it. The text is a sentence, or what is
    said of a subject; a sentence that begins with the path has it as its subject. `logged` is for
    logs and traces, where the text has parts of the request.
    """

    def __init__(
        self,
        text: str,
        field: str | None = None,
        logged: str | None = None,
        *,
        subject: str = "",
        beside: str = "",
        remedy: Remedy = "",
    ) -> None:
        super().__init__(text)
        if not subject and field and text.startswith(f"{field} "):
            subject, text = field, text.removeprefix(f"{field} ")
        self.text, self.subject = text, subject
        self.field, self.beside = field, beside
        self.logged = logged
        self.remedy, self.ending = remedy, REMEDIES.get(remedy, "")

    def __str__(self) -> str:
        sentence = f"{self.subject} {self.text}" if self.subject else self.text
        return shortened(sentence + self.ending)

    def at(self, paths: Mapping[str, str]) -> Self:
        """A copy of the error, of a record that has the values at other paths."""
        error = copy(self)
        error.field = None if self.field is None else path_in(paths, self.field)
        error.beside = path_in(paths, self.beside)
        return error

    def named(self, names: Mapping[str, str], remedies: Mapping[Remedy, str]) -> Self:
        """A copy of the error in a front's words for values and remedies."""
        if self.field is None:
            return self
        name = path_in(names, self.field)
        error = copy(self)
        error.field = _without_places(name)
        if self.subject:
            other = _first_of(path_in(names, self.beside))
            is_other = other not in ("", _first_of(name))
            error.subject = f"{name} with its {other}" if is_other else name
        error.ending = remedies.get(self.remedy, "")
        return error


class InputTooLong(InvalidArgument):
    """A text or a prompt has more tokens than the model takes."""


class LacksKind(InvalidArgument):
    """An embedder has no vectors of a kind."""

    def __init__(self, kind: str, known: Sequence[str]) -> None:
        self.kind, self.known = kind, tuple(known)
        answers = " and ".join(known)
        super().__init__(
            f"has {kind}, but the model answers {answers} only", "kinds", subject="kinds"
        )
        self.args = kind, self.known  # of which a copy is made


class NoChatTemplate(InvalidArgument):
    """The model makes no prompts of conversations."""


def invalid_field(field: str, text: str) -> InvalidArgument:
    """The error of a field, whose name begins the text."""
    return InvalidArgument(text, field, subject=field)


def path_in(paths: Mapping[str, str], path: str) -> str:
    """The path by which a value is known elsewhere.

    It is named as a whole, as any element of a list (`texts[]`), or by its first step, behind which
    the others stay.
    """
    if path in paths:
        return paths[path]
    first = _first_of(path)
    if path.startswith(f"{first}[") and (name := paths.get(f"{first}[]")) is not None:
        return name
    return paths.get(first, first) + path.removeprefix(first)


def _first_of(path: str) -> str:
    return path.partition("[")[0].partition(".")[0]


def _without_places(path: str) -> str:
    """A path without the numbers at its end: the field of a list that has the value."""
    while path.endswith("]"):
        path = path.rpartition("[")[0]
    return path


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


T = TypeVar("T")


class ByKind(dict[type[BaseException], T]):
    """Values by kinds of errors: one that is not there has the value of the next that it is of."""

    def __missing__(self, kind: type[BaseException]) -> T:
        for base in kind.__mro__[1:]:
            if base in self:
                return self[base]
        raise KeyError(kind)
