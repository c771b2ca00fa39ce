"""Maps errors to HTTP statuses: one table, and writers of bodies, chosen by the path.

Paths of OpenAI's API answer errors as its clients read them: an object with message, type, param
and code. All others answer as Triton does, `{"error": text}`, those of its protocol with its
statuses where they differ.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import msgspec

from service import errors
from service.api.calls import Ends
from service.errors import shortened

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
RETRY_AFTER_MS = 100  # about a full queue's worth of small batches
NO_RETRY: Headers = ((b"x-should-retry", b"false"),)  # else openai's clients ask three times
OPENAI_SEGMENTS = frozenset(
    (
        *("chat", "completions", "embeddings"),  # which lack the /v1 before them
        *("v1", "openai", "tokenize", "detokenize", "tokenizer_info"),
        *("score", "rerank", "ranking", "classify", "pooling"),
    )
)


class HttpError(Exception):
    """An error of the front's own, or of the domain, as a client gets it."""

    def __init__(
        self,
        status: int,
        text: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Headers = (),
        name: str | None = None,
    ) -> None:
        super().__init__(shortened(text))
        self.status, self.kind, self.code, self.param = status, kind, code, param
        self.headers = headers
        self.name = name  # the typed API's status, of what an operation refuses


def invalid(text: str, param: str | None = None, code: str = "invalid_value") -> HttpError:
    """The error of a field that has a value it cannot have."""
    return HttpError(400, text, code=code, param=param)


@dataclass(frozen=True, slots=True)
class Status:
    """HTTP status of an error of the domain."""

    number: int
    name: str  # gRPC's, for logs and traces
    kind: str = "invalid_request_error"
    code: str | None = None
    triton: int | None = None  # on paths of Triton's protocol, where it differs


ANTHROPIC_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}
_BUSY = Status(429, "RESOURCE_EXHAUSTED", "rate_limit_error", "overloaded", triton=503)
_FULL = Status(429, "RESOURCE_EXHAUSTED", "rate_limit_error", "out_of_memory", triton=500)
_GONE = Status(503, "UNAVAILABLE", "server_error", "unavailable")
_LATE = Status(504, "DEADLINE_EXCEEDED", "server_error", "timeout")
_FAILED = Status(500, "INTERNAL", "server_error", "model_failed")
STATUSES = errors.ByKind(
    {
        errors.InvalidArgument: Status(400, "INVALID_ARGUMENT", code="invalid_value"),
        errors.InputTooLong: Status(400, "INVALID_ARGUMENT", code="context_length_exceeded"),
        errors.LacksKind: Status(400, "INVALID_ARGUMENT", code="invalid_value"),
        errors.NoChatTemplate: Status(400, "INVALID_ARGUMENT", code="no_chat_template"),
        errors.NotFound: Status(404, "NOT_FOUND", code="model_not_found"),
        errors.AlreadyExists: Status(409, "ALREADY_EXISTS", code="already_exists", triton=400),
        errors.WrongTask: Status(400, "FAILED_PRECONDITION", code="wrong_task"),
        errors.Unimplemented: Status(501, "UNIMPLEMENTED", code="unsupported"),
        errors.Overloaded: _BUSY,
        errors.WaitTooLong: _BUSY,
        errors.TooEarly: _LATE,
        errors.TimedOut: _GONE,
        errors.Unavailable: _GONE,
        errors.DeadlineExceeded: _LATE,
        errors.TooLate: _LATE,
        errors.ModelFailed: _FAILED,
        errors.DeviceFailed: _FAILED,
        errors.OutOfMemory: _FULL,
        errors.RegionFailed: _FAILED,
        errors.LoadError: _FAILED,
    }
)
# The typed API's statuses, `protos/attendant/v1` has them, where HTTP's are those of others.
TYPED_NAMES: dict[type[errors.AttendantError], str] = {
    errors.TimedOut: "DEADLINE_EXCEEDED",
    errors.WaitTooLong: "UNAVAILABLE",
}
ENDED_WELL = (200, "OK")
# What ends a call, for observers.
ENDS: Ends = errors.ByKind(
    {
        **{error: (status.number, status.name) for error, status in STATUSES.items()},
        asyncio.CancelledError: (499, "CANCELLED"),
        TimeoutError: (504, "DEADLINE_EXCEEDED"),
        Exception: (500, "INTERNAL"),
    }
)


class Writer(Protocol):
    """The form of errors on some paths."""

    def error(self, error: HttpError) -> tuple[int, bytes, Headers]:
        """Status, body and headers."""

    def of_domain(self, error: errors.AttendantError) -> HttpError: ...


class OpenAIWriter:
    """Errors as OpenAI's clients read them."""

    def error(self, error: HttpError) -> tuple[int, bytes, Headers]:
        return error.status, openai_body(error), error.headers

    def of_domain(self, error: errors.AttendantError) -> HttpError:
        status = STATUSES[type(error)]
        return _http_error(error, status, status.number)


@dataclass(frozen=True, slots=True)
class TextWriter:
    """Errors as a text, with Triton's statuses where its clients are the readers."""

    is_triton: bool = False

    def error(self, error: HttpError) -> tuple[int, bytes, Headers]:
        return error.status, msgspec.json.encode({"error": str(error)}), error.headers

    def of_domain(self, error: errors.AttendantError) -> HttpError:
        status = STATUSES[type(error)]
        number = (status.triton if self.is_triton else None) or status.number
        return _http_error(error, status, number)


class TypedWriter(TextWriter):
    """Errors as a text, with the status that the typed API's files name, as over gRPC."""

    def error(self, error: HttpError) -> tuple[int, bytes, Headers]:
        name = error.name or ("INVALID_ARGUMENT" if error.status == 400 else None)
        if name is None:
            return super().error(error)
        fields = {"error": str(error), "status": name}
        if error.param is not None:
            fields["field"] = error.param
        return error.status, msgspec.json.encode(fields), error.headers


class AnthropicWriter(OpenAIWriter):
    """Errors as Anthropic's clients read them."""

    def error(self, error: HttpError) -> tuple[int, bytes, Headers]:
        status = 529 if error.code == "overloaded" else error.status
        return status, msgspec.json.encode(anthropic_error(error)), error.headers

    def of_domain(self, error: errors.AttendantError) -> HttpError:
        found = super().of_domain(error)
        text = str(error).replace(",", "")
        counts = re.findall(r"\d+", text) if isinstance(error, errors.InputTooLong) else ()
        if len(counts) < 2:
            return found
        # Words that clients read the numbers in.
        text = f"prompt is too long: {counts[0]} tokens > {counts[-1]} maximum"
        return HttpError(found.status, text, code=found.code, param=found.param)


OPENAI, TRITON, PLAIN = OpenAIWriter(), TextWriter(is_triton=True), TextWriter()
TYPED, ANTHROPIC = TypedWriter(), AnthropicWriter()
_MESSAGES = re.compile(r"/v1/messages(/count_tokens)?/?(\?|$)")


def writer_of(path: str) -> Writer:
    """The writer for a path, with or without a query."""
    if _MESSAGES.search(path):
        return ANTHROPIC
    first, *rest = path.lstrip("/").partition("?")[0].split("/")
    leading = rest[1:2] if first == "models" else [first]  # what follows a model's name
    lists_models = first == "models" and not any(rest)  # without /v1
    is_openai = lists_models or not OPENAI_SEGMENTS.isdisjoint(leading)
    if is_openai or path.startswith("/v2/rerank"):
        return OPENAI
    return {"v2": TRITON, "api": TYPED}.get(first, PLAIN)


def anthropic_error(error: HttpError) -> dict[str, Any]:
    """The object that Anthropic's clients read."""
    kind = "overloaded_error" if error.code == "overloaded" else ANTHROPIC_KINDS.get(error.status)
    usual = "api_error" if error.status >= 500 else "invalid_request_error"
    return {"type": "error", "error": {"type": kind or usual, "message": str(error)}}


def openai_body(error: HttpError) -> bytes:
    """The object that OpenAI's clients read, all four keys."""
    return msgspec.json.encode(
        {
            "error": {
                "message": str(error),
                "type": error.kind,
                "param": error.param,
                "code": error.code,
            }
        }
    )


def _http_error(error: errors.AttendantError, status: Status, number: int) -> HttpError:
    headers: Headers = ()
    if status in (_BUSY, _FULL, _GONE) and number != 500:
        retry_ms = RETRY_AFTER_MS
        if isinstance(error, errors.WaitTooLong):
            retry_ms = max(retry_ms, round(error.excess_s * 1e3))
        after_s = b"%d" % -(-retry_ms // 1_000)
        headers = ((b"retry-after", after_s), (b"retry-after-ms", b"%d" % retry_ms))
    elif number in (501, 504):
        headers = NO_RETRY
    param = "model" if isinstance(error, errors.NotFound | errors.WrongTask) else None
    if isinstance(error, errors.InvalidArgument):
        param = error.field
    return HttpError(
        number,
        str(error),
        kind=status.kind,
        code=status.code,
        param=param,
        headers=headers,
        name=TYPED_NAMES.get(type(error), status.name),
    )
