"""Inputs of one text or of several, and refusals of what stands beside them.

As Hugging Face's pipelines have them, and text-embeddings-inference.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from service.calls.record import Call
from service.http.numbers import decode_number
from service.http.request import Request
from service.http.shared.fields import check_count, texts_of
from service.http.shared.names import Names, names_of
from service.http.shared.peer_fields import unsupported
from service.http.status import invalid
from service.http.wire.json_faults import of_record

T = TypeVar("T")
LONGEST_SPACE = 2**10  # before most values
TEXTS = ("texts", "text_pairs")  # as records call what `inputs` has


class Compared(msgspec.Struct):
    """A text, and those that it is compared with."""

    source_sentence: str
    sentences: list[str]


@dataclass(frozen=True, slots=True)
class Inputs:
    """The texts of a request, and whether it has one that stands alone: so does its answer."""

    texts: list[str]
    is_one: bool

    @classmethod
    async def of(cls, request: Request, raw: msgspec.Raw) -> "Inputs":
        """Raises `HttpError`."""
        most = request.front.settings.max_texts
        texts = await request.work(lambda: texts_of(raw, "inputs", most))
        return cls(texts, is_one=not begins(raw, b"["))

    def names(self, call: type[Call], cut: str = "") -> Names:
        """The names that errors of a call have; `cut` is how the body asks for a cut."""
        single = [each for each in TEXTS if self.is_one and each in call.__struct_fields__]
        return names_of("huggingface", call, single=single, cut=cut)

    def shaped(self, answers: list[T]) -> T | list[T]:
        """The answer of the only text, or those of all in a list."""
        return answers[0] if self.is_one else answers


def begins(raw: msgspec.Raw, sign: bytes) -> bool:
    """Whether a value of JSON begins with a sign, which says of what kind it is."""
    beginning = bytes(memoryview(raw)[:LONGEST_SPACE]).lstrip()
    return (beginning or bytes(raw).lstrip())[:1] == sign


def inputs_as(raw: msgspec.Raw, kind: type[T]) -> T:
    """The inputs as a record. Raises `HttpError`."""
    try:
        return msgspec.json.decode(raw, type=kind, dec_hook=decode_number)
    except msgspec.ValidationError as error:
        fault = of_record(error, "inputs")
        raise invalid(fault.text, fault.field) from error


def check_texts(request: Request, texts: list[str], name: str) -> None:
    check_count(len(texts), name, request.front.settings.max_texts)


def refuse(parameters: object, reasons: Mapping[str, str], harmless: Iterable[Any] = ()) -> None:
    """Raise `HttpError` for a parameter that is set and would change the answer elsewhere."""
    for name, reason in reasons.items():
        value = getattr(parameters, name)
        is_harmless = value is not True and value in (None, False, *harmless)  # True equals 1
        if not is_harmless:
            raise unsupported(name, reason)
