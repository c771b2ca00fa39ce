"""Fields that clients of other servers send, and what becomes of each, by kind of request.

    done        the field is read: it changes the answer, or a wrong value is refused
    refused     a value that is not neutral would change the answer, and is refused by the name
    harmless    it changes no answer, here or there: taken and not read

Bodies are decoded as records, which have the fields that are done; `refusing` looks for those that
are refused. Fields that no table has are ignored, as clients add some every month. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from service.http.status import HttpError, invalid

MAX_NEUTRAL_BYTES = 64  # of a value that may be neutral, as JSON


class Verdict(StrEnum):
    """Treatment of a field."""

    DONE = "done"
    REFUSED = "refused"
    HARMLESS = "harmless"


@dataclass(frozen=True, slots=True)
class PeerField:
    """One field that some server takes."""

    name: str
    verdict: Verdict
    reason: str = ""  # why it is refused, or changes nothing
    neutral: tuple[Any, ...] = ()  # values of a refused field that change nothing; null is always


def done(*names: str) -> tuple[PeerField, ...]:
    return tuple(PeerField(name, Verdict.DONE) for name in names)


def refused(reason: str, *names: str, neutral: tuple[Any, ...] = ()) -> tuple[PeerField, ...]:
    return tuple(PeerField(name, Verdict.REFUSED, reason, neutral) for name in names)


def harmless(reason: str, *names: str) -> tuple[PeerField, ...]:
    return tuple(PeerField(name, Verdict.HARMLESS, reason) for name in names)


class Refusals:
    """The refused fields of one kind of request."""

    def __init__(self, fields: Iterable[PeerField]) -> None:
        self._fields: Mapping[str, PeerField] = {
            field.name: field for field in fields if field.verdict is Verdict.REFUSED
        }
        kind = msgspec.Raw | msgspec.UnsetType
        self._decoder = msgspec.json.Decoder(
            msgspec.defstruct("Refused", [(name, kind, msgspec.UNSET) for name in self._fields])
        )

    def check(self, body: bytes | bytearray) -> None:
        """Raise `HttpError` for a body, an object of JSON, that has one of the fields."""
        found = self._decoder.decode(body)
        for name, field in self._fields.items():
            raw = getattr(found, name)
            if not isinstance(raw, msgspec.UnsetType) and not _is_neutral(raw, field):
                raise unsupported(name, field.reason)


def unsupported(name: str, why: str) -> HttpError:
    """The refusal of a field whose meaning would be lost if it were ignored."""
    return invalid(f"{name} is not supported: {why}", name, "unsupported_parameter")


def _is_neutral(raw: msgspec.Raw, field: PeerField) -> bool:
    text = bytes(raw).strip()
    if text == b"null":
        return True
    if len(text) > MAX_NEUTRAL_BYTES:
        return False
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    is_switch = isinstance(value, bool)
    return any(value == each and is_switch == isinstance(each, bool) for each in field.neutral)
