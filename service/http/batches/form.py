"""The parts of a body of `multipart/form-data` (RFC 7578).

A body is there as a whole, so that its parts are between its delimiters, and are no copies. It is
searched piece by piece, so that another thread has the interpreter in between. The headers are read
by the standard library's parser, which knows quotes, and names in other alphabets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from itertools import islice, pairwise

from service.http.status import HttpError, invalid

MAX_PARTS = 16
MAX_HEAD_BYTES = 4_096  # of a part's headers
MAX_NAME = 512  # characters of a file's name
SEARCHED_BYTES = 2**20  # at once


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a form, or a file of it."""

    content: bytes | memoryview
    filename: str | None = None

    @property
    def text(self) -> str:
        return bytes(self.content).decode("utf-8", "replace")


def parts_of(body: bytes | bytearray, content_type: str) -> dict[str, Part]:
    """The parts by name. Raises `HttpError`."""
    head = _headers(f"content-type: {content_type}".encode())
    boundary = head.get_boundary() or ""
    if head.get_content_type() != "multipart/form-data" or not boundary:
        given = head.get_content_type() if content_type else "absent"
        raise invalid(f"content-type is {given[:64]}, expected multipart/form-data with a boundary")
    mark = b"\r\n--" + boundary.encode("latin-1", "replace")
    places = list(islice(_places(body, mark), MAX_PARTS + 2))
    if len(places) > MAX_PARTS + 1:
        raise invalid(f"the form has more than {MAX_PARTS} parts, expected at most {MAX_PARTS}")
    if (
        not places
        or places[0] > MAX_HEAD_BYTES
        or body[: max(0, places[0])].strip()
        or not body.startswith(b"--", places[-1] + len(mark))
    ):
        raise invalid("the body is no form: it does not begin and end with its boundary")
    parts: dict[str, Part] = {}
    for place, end in pairwise(places):
        name, part = _part(memoryview(body)[place + len(mark) : end])
        if name in parts:
            raise invalid(f"the form has the field '{name[:64]}' twice", name[:64])
        parts[name] = part
    return parts


def _places(body: bytes | bytearray, mark: bytes) -> Iterator[int]:
    """Where the delimiters begin; the first one may have no line before it."""
    start = 0
    if body.startswith(mark[2:]):
        yield -2
        start = len(mark) - 2
    while start < len(body):
        place = body.find(mark, start, start + SEARCHED_BYTES + len(mark) - 1)
        if place >= 0:
            yield place
        start = start + SEARCHED_BYTES if place < 0 else place + len(mark)


def _part(piece: memoryview) -> tuple[str, Part]:
    padding, _, rest = bytes(piece[: 2 * MAX_HEAD_BYTES]).partition(b"\r\n")
    end = (b"\r\n" + rest[: MAX_HEAD_BYTES + 4]).find(b"\r\n\r\n")
    if padding.strip(b" \t") or end < 0:
        raise HttpError(400, "a part of the form has no readable headers", code="invalid_value")
    head = _headers(rest[: end + 2])
    name = head.get_param("name", header="content-disposition")
    if head.get_content_disposition() != "form-data" or not isinstance(name, str):
        raise invalid("a part of the form has no name, expected content-disposition: form-data")
    filename = head.get_filename()
    content = piece[len(padding) + 2 + end + 2 :]
    return name, Part(content, None if filename is None else filename[:MAX_NAME])


def _headers(head: bytes) -> Message:
    return HeaderParser().parsestr(head.decode("utf-8", "replace"))
