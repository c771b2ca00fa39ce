"""Calls over HTTP: typed ones as protobuf's JSON, those for tensors as the Open Inference Protocol.

urllib3 keeps the connections, of which each thread takes one at a time. Like gRPC's, a deadline is
that of the whole answer. What a server refuses has the same status and text as over gRPC, where the
answer says which: the typed API names gRPC's status, other answers have HTTP's only.
"""

import json
import time
from collections.abc import Generator, Iterator
from http.client import responses
from typing import Any, NamedTuple, TypeVar

import urllib3
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import Message
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
    SSLError,
)

from commands.ask.client.access import Access
from commands.ask.client.http_address import MAX_WAIT_S, http_address, trust_of
from commands.ask.client.refusal import CallError

M = TypeVar("M", bound=Message)
TYPED, TENSORS = "/attendant.v1.", "/inference.GRPCInferenceService/"
JSON = "application/json"
MAX_CONNECTIONS = 8  # kept open: as many as there are requests in flight, and some
PIECE_BYTES = 2**16
OF_ITSELF = ("NOT_FOUND", "UNIMPLEMENTED", "ALREADY_EXISTS")  # of one request, not of the server
TOO_MANY_REQUESTS = 429  # the only status whose retry hint gRPC has, too
# gRPC's names for statuses of answers that name none, as google.rpc.Code maps them.
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ALREADY_EXISTS",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Sent(NamedTuple):
    """A request."""

    method: str
    place: str
    body: bytes | None
    headers: dict[str, str]


class HttpTransport:
    """The calls of one server's HTTP port."""

    def __init__(self, address: str, timeout_s: float, access: Access) -> None:
        """Raises `SettingError`."""
        parts = http_address(address)
        self._address = address.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"authorization": f"Bearer {access.token}"} if access.token else {}
        tls: dict[str, Any] = {}
        if parts.has_tls:
            name = access.tls_name or None
            tls = {
                "ssl_context": trust_of(access),
                "server_hostname": name,
                "assert_hostname": name,
            }
        kind = urllib3.HTTPSConnectionPool if parts.has_tls else urllib3.HTTPConnectionPool
        self._pool = kind(parts.host, parts.port, maxsize=MAX_CONNECTIONS, **tls)

    def ask(self, path: str, request: Message, response: type[M]) -> M:
        if path.startswith(TENSORS):
            from commands.ask.client.tensor_bodies import read_tensors

            return read_tensors(*self._whole(_of_tensors(path, request)), response())
        content, _ = self._whole(_typed(path, request))
        return self._message(content, response)

    def stream(self, path: str, request: Message, response: type[M]) -> Generator[M, None, None]:
        deadline_s = time.monotonic() + self._timeout_s
        answer = self._begin(_typed(path, request), deadline_s)
        try:
            for line in self._lines(answer, deadline_s):
                yield self._message(line, response)
        finally:
            answer.close()

    def post(self, place: str, body: bytes) -> tuple[int, bytes, str]:
        """Status, body and request id of the answer to JSON, in the background.

        Raises `CallError`: INVALID_ARGUMENT for a request that is refused by itself.
        """
        headers = {"content-type": JSON, "priority": "u=7"}
        try:
            content, answered = self._whole(Sent("POST", place, body, headers))
        except CallError as error:
            if error.status in OF_ITSELF:
                raise CallError("INVALID_ARGUMENT", error.text) from error
            raise
        return 200, content, answered.get("x-request-id", "")

    def close(self) -> None:
        self._pool.close()

    def _whole(self, sent: Sent) -> tuple[bytes, urllib3.HTTPHeaderDict]:
        """The body and the headers of an answer."""
        deadline_s = time.monotonic() + self._timeout_s
        answer = self._begin(sent, deadline_s)
        content = b"".join(self._pieces(answer, deadline_s))
        answer.release_conn()
        return content, answer.headers

    def _begin(
        self, sent: Sent, deadline_s: float, *, may_repeat: bool = True
    ) -> urllib3.BaseHTTPResponse:
        """The answer with its headers, if it is one of success."""
        left_s = max(deadline_s - time.monotonic(), 0.001)
        try:
            answer = self._pool.urlopen(
                sent.method,
                sent.place,
                sent.body,
                self._headers | sent.headers,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(total=min(left_s, MAX_WAIT_S)),
                preload_content=False,
            )
        except HTTPError as error:
            if may_repeat and _is_dropped(error):
                return self._begin(sent, deadline_s, may_repeat=False)
            raise self._broken(error) from error
        if answer.status == 200:
            return answer
        content = b"".join(self._pieces(answer, deadline_s))
        answer.release_conn()
        retry_ms = answer.headers.get("retry-after-ms", "")
        has_hint = answer.status == TOO_MANY_REQUESTS and retry_ms.isdecimal()
        retry_after_s = int(retry_ms) / 1_000 if has_hint else 0.0
        raise self._refusal(answer.status, content, retry_after_s)

    def _pieces(self, answer: urllib3.BaseHTTPResponse, deadline_s: float) -> Iterator[bytes]:
        """The body as it comes."""
        try:
            while True:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    answer.close()
                    raise self._late()
                socket = getattr(answer.connection, "sock", None)
                if socket is not None:  # the connection may be closed, but for the buffer
                    socket.settimeout(min(left_s, MAX_WAIT_S))
                piece = answer.read1(PIECE_BYTES)
                if not piece:
                    return
                yield piece
        except HTTPError as error:
            raise self._broken(error) from error

    def _lines(self, answer: urllib3.BaseHTTPResponse, deadline_s: float) -> Iterator[bytes]:
        rest = b""
        for piece in self._pieces(answer, deadline_s):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines

    def _message(self, content: bytes, response: type[M]) -> M:
        """A message from its JSON, which in a stream may be that of an error."""
        try:
            fields = _object(content)
            if "error" in fields and "error" not in response.DESCRIPTOR.fields_by_name:
                raise self._refusal(500, content)
            return ParseDict(fields, response(), ignore_unknown_fields=True)
        except (ValueError, ParseError) as error:
            text = f"{self._address} gave an answer that is none of Attendant's: {error}"
            raise CallError("UNIMPLEMENTED", text) from error

    def _refusal(self, number: int, content: bytes, retry_after_s: float = 0.0) -> CallError:
        try:
            body = _object(content)
            told, status = body["error"], body.get("status")
            text = str(told["message"] if isinstance(told, dict) else told)
        except (ValueError, KeyError):  # of a proxy, or another server
            text, status = f"{self._address} answered {number} {responses.get(number, '')}", None
        name = status if isinstance(status, str) else STATUSES.get(number, "UNKNOWN")
        return CallError(name, " ".join(text.split()), retry_after_s)

    def _late(self) -> CallError:
        text = (
            f"{self._address} gave no answer within {self._timeout_s:g} s, which --timeout-s allows"
        )
        return CallError("DEADLINE_EXCEEDED", text)

    def _broken(self, error: HTTPError) -> CallError:
        """Why there is no answer, or not all of one."""
        is_absent = isinstance(error, NewConnectionError)
        if isinstance(error, (ReadTimeoutError, ConnectTimeoutError)) and not is_absent:
            return self._late()
        reason = " ".join(str(error).split()).rpartition("connection: ")[2]
        if is_absent:
            text = (
                f"no server answers at {self._address}: start one by 'attendant serve', or name "
                f"another by --address ({reason})"
            )
        elif isinstance(error, SSLError):
            text = f"there is no TLS with {self._address}: see --tls-ca and --tls-name ({reason})"
        elif isinstance(error, ProtocolError) and "IncompleteRead" not in reason:
            text = (
                f"{self._address} gives no answer in HTTP/1.1: an address of gRPC is HOST:PORT, "
                f"and one with TLS begins with https:// ({reason})"
            )
        else:
            text = f"the connection to {self._address} ended before the answer did ({reason})"
        return CallError("UNAVAILABLE", text)


def _typed(path: str, request: Message) -> Sent:
    """The request of a method of the typed API."""
    assert path.startswith(TYPED), "the typed API's services are the only others"
    body = MessageToJson(request, indent=None, ensure_ascii=False).encode()
    return Sent("POST", f"/api/{path.rpartition('/')[2]}", body, {"content-type": JSON})


def _of_tensors(path: str, request: Any) -> Sent:
    """The request of `ModelMetadata`, or of `ModelInfer`."""
    from commands.ask.client.tensor_bodies import HEADER_LENGTH, inference_body, place_of

    operation = path.removeprefix(TENSORS)
    if operation == "ModelMetadata":
        return Sent("GET", place_of(request.name, request.version), None, {})
    assert operation == "ModelInfer", "the commands ask for no other"
    body, num_json_bytes = inference_body(request)
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(num_json_bytes)}
    place = place_of(request.model_name, request.model_version)
    return Sent("POST", f"{place}/infer", body, headers)


def _object(content: bytes) -> dict[str, Any]:
    """The fields of a JSON object. Raises `ValueError`."""
    fields = json.loads(content)
    if not isinstance(fields, dict):
        raise ValueError("it is JSON, but not an object")  # noqa: TRY004 - as of other contents
    return fields


def _is_dropped(error: HTTPError) -> bool:
    """Whether the server ended a connection that was kept, while the request was on its way."""
    cause = error.args[-1] if isinstance(error, ProtocolError) else None
    return isinstance(cause, ConnectionError)
