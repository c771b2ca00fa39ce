"""The parts of a body of `multipart/form-data` (RFC 7578).

A body is there as a whole, so that its parts are between its delimiters; the headers are read by
the standard library's parser, which knows quotes, and names in other alphabets.
"""

from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser

from service.http.status import HttpError, invalid

MAX_PARTS = 16
MAX_HEAD_BYTES = 4_096  # of a part's headers
MAX_NAME = 512  # characters of a file's name


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a form, or a file of it."""

    content: bytes
    filename: str | None = None

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


def parts_of(body: bytes, content_type: str) -> dict[str, Part]:
    """The parts by name. Raises `HttpError`."""
    head = _headers(f"content-type: {content_type}".encode())
    boundary = head.get_boundary() or ""
    if head.get_content_type() != "multipart/form-data" or not boundary:
        given = head.get_content_type() if content_type else "absent"
        raise invalid(f"content-type is {given[:64]}, expected multipart/form-data with a boundary")
    opening, *pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"))
    if opening.strip() or not pieces or not pieces[-1].startswith(b"--"):
        raise invalid("the body is no form: it does not begin and end with its boundary")
    if len(pieces) > MAX_PARTS + 1:
        raise invalid(f"the form has {len(pieces) - 1} parts, expected at most {MAX_PARTS}")
    parts: dict[str, Part] = {}
    for piece in pieces[:-1]:
        name, part = _part(piece)
        if name in parts:
            raise invalid(f"the form has the field '{name[:64]}' twice", name[:64])
        parts[name] = part
    return parts


def _part(piece: bytes) -> tuple[str, Part]:
    padding, _, rest = piece.partition(b"\r\n")
    end = (b"\r\n" + rest[: MAX_HEAD_BYTES + 4]).find(b"\r\n\r\n")
    if padding.strip(b" \t") or end < 0:
        raise HttpError(400, "a part of the form has no readable headers", code="invalid_value")
    head = _headers(rest[: end + 2])
    name = head.get_param("name", header="content-disposition")
    if head.get_content_disposition() != "form-data" or not isinstance(name, str):
        raise invalid("a part of the form has no name, expected content-disposition: form-data")
    filename = head.get_filename()
    return name, Part(rest[end + 2 :], None if filename is None else filename[:MAX_NAME])


def _headers(head: bytes) -> Message:
    return HeaderParser().parsestr(head.decode("utf-8", "replace"))
