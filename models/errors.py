"""Errors in a user's input; every message says where, and what was expected.

Knows nothing about PyTorch, nor about exit codes: the command line turns these into messages.

    ModelError
    ├── CheckpointError           a folder, config.json, weights or tokenizer
    ├── DatasetError              a file of texts to learn from
    ├── OutputError               what a command makes cannot be written
    ├── SettingError              one setting outside its limits
    └── TrainingInterruptedError  not a fault: training stopped early and can be resumed
"""

from collections.abc import Iterable

MAX_SHOWN = 100  # characters of a wrong value in a message
MAX_REASON = 500  # of an error of a library


def shown(value: object) -> str:
    """A wrong value as a message has it: one line, cut where it is long."""
    return _cut(repr(value), MAX_SHOWN)


def reason(error: BaseException) -> str:
    """Reason of a library's error, without the whole of a file that it may quote."""
    return _cut(str(error).encode(errors="backslashreplace").decode(), MAX_REASON)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


class ModelError(Exception):
    """Base of all errors that this package raises on purpose."""


class CheckpointError(ModelError):
    """A checkpoint cannot be read or written; names the file and what was expected."""


class DatasetError(ModelError):
    """A file of texts is not usable; names the file, and the line or byte."""


class OutputError(ModelError):
    """A file cannot be written; names it, the reason and, of a full disk, what is missing."""


class SettingError(ModelError):
    """One setting is outside its limits; names the field, the value and the limit."""

    def __init__(self, field: str, value: object, limit: str) -> None:
        super().__init__(f"{field} is {shown(value)}, but must be {limit}")
        self.field = field
        self.value = value
        self.limit = limit


class TrainingInterruptedError(ModelError):
    """Training was asked to stop; its state is saved and the same command continues it."""


def check_choice(field: str, value: str, choices: Iterable[str]) -> None:
    allowed = tuple(choices)
    if value not in allowed:
        raise SettingError(field, value, f"one of {', '.join(allowed)}")


def check_range(field: str, value: float, low: float, high: float) -> None:
    """Both limits are allowed values."""
    if not low <= value <= high:
        limit = f"at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
        raise SettingError(field, value, limit)
