"""The lines of a batch's file: its requests, and the faults for which a file is refused.

Pure: it reads bytes that are given, one line at a time, and keeps the names of lines alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_FAULTS = 100  # of a file that are told
MAX_ID_CHARACTERS = 512
MAX_SHOWN = 64  # characters of a wrong value


class Line(msgspec.Struct, frozen=True):
    """One request of a file."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class Fault(Exception):  # noqa: N818 - told in the words of OpenAI's API
    """Why a line, or a whole file where it has no number, is refused."""

    def __init__(
        self, code: str, message: str, param: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.param, self.line = code, message, param, line

    def told(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "line": self.line,
            "message": self.message,
            "param": self.param,
        }


def numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers from 1, without those that are empty and without a first mark."""
    for number, line in enumerate(lines, start=1):
        content = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        if content and not content.isspace():
            yield number, content


def read_line(content: bytes, endpoint: str, max_bytes: int) -> Line:
    """The request of a line, of any path of `/v1` without an endpoint.

    Raises `Fault`, without a number.
    """
    if len(content) > max_bytes:
        raise Fault(
            "line_too_long",
            f"the line has {len(content)} bytes, expected at most {max_bytes}: see "
            "--http-max-json-bytes",
        )
    try:
        fields = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        content.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Fault("invalid_json_line", f"the line is no JSON object: {error}") from None
    custom_id, method, url = (_text(fields, name) for name in ("custom_id", "method", "url"))
    if not 1 <= len(custom_id) <= MAX_ID_CHARACTERS:
        raise Fault(
            "invalid_custom_id",
            f"custom_id has {len(custom_id)} characters, expected 1 to {MAX_ID_CHARACTERS}",
            "custom_id",
        )
    if method != "POST":
        raise Fault("invalid_method", f"method is '{method[:MAX_SHOWN]}', expected POST", "method")
    if not endpoint and not url.startswith("/v1/"):
        raise Fault("invalid_url", f"url is '{url[:MAX_SHOWN]}', expected one below /v1", "url")
    if endpoint and url != endpoint:
        raise Fault(
            "mismatched_url",
            f"url is '{url[:MAX_SHOWN]}', expected '{endpoint}' as the batch's endpoint",
            "url",
        )
    body = bytes(_field(fields, "body")).strip()
    if not body.startswith(b"{"):
        raise Fault("invalid_request", "body is no JSON object", "body")
    return Line(custom_id, method, url, msgspec.Raw(body))


def check_lines(
    lines: Iterable[bytes], endpoint: str, max_lines: int, max_bytes: int
) -> tuple[int, list[Fault]]:
    """The number of a file's requests, and its faults, at most `MAX_FAULTS`."""
    number_of: dict[str, int] = {}  # by custom_id
    faults: list[Fault] = []
    count = 0
    for number, content in numbered(lines):
        count += 1
        if count > max_lines:
            text = f"the file has more than {max_lines} requests: see --max-batch-lines"
            return count, [Fault("too_many_requests", text)]
        try:
            line = read_line(content, endpoint, max_bytes)
            _check_new(line.custom_id, number_of)
            number_of[line.custom_id] = number
        except Fault as fault:
            faults.append(Fault(fault.code, fault.message, fault.param, number))
            if len(faults) == MAX_FAULTS:
                break
    if not count:
        faults.append(Fault("empty_file", "the file has no requests"))
    return count, faults


def _check_new(custom_id: str, number_of: Mapping[str, int]) -> None:
    if custom_id in number_of:
        raise Fault(
            "duplicate_custom_id",
            f"custom_id '{custom_id[:MAX_SHOWN]}' is that of line {number_of[custom_id]} already",
            "custom_id",
        )


def _field(fields: dict[str, msgspec.Raw], name: str) -> msgspec.Raw:
    if name not in fields:
        raise Fault("missing_required_parameter", f"{name} is missing", name)
    return fields[name]


def _text(fields: dict[str, msgspec.Raw], name: str) -> str:
    try:
        return msgspec.json.decode(_field(fields, name), type=str)
    except msgspec.DecodeError:
        raise Fault("invalid_request", f"{name} is no text", name) from None
