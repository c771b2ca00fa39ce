"""Probes of liveness and readiness on the port of the metrics, answered on threads of their own.

They are answered while the event loop is busy, while models are loaded and the other ports are not
open yet, and while the server drains; without TLS or a token, as that port has neither. The paths
and bodies are those of the HTTP port. Knows only what it is given to read.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], Any]
Application: TypeAlias = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]
LIVE_PATHS = ("/v2/health/live", "/ping")
READY_PATHS = ("/v2/health/ready", "/health")


class Probed(Protocol):
    """State of the process for probes; read on any thread."""

    @property
    def is_live(self) -> bool: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def lifeless_reason(self) -> str: ...

    @property
    def unready_reason(self) -> str: ...


def with_probes(others: Application, state: Probed) -> Application:
    """An application that answers probes, and leaves all other paths to `others`."""

    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path in LIVE_PATHS:
            reason = None if state.is_live else state.lifeless_reason
            return _told("live", reason, start_response)
        if path in READY_PATHS:
            reason = None if state.is_ready else state.unready_reason
            return _told("ready", reason, start_response)
        return others(environ, start_response)

    return answer


def _told(name: str, reason: str | None, start_response: StartResponse) -> list[bytes]:
    """The answer that it holds, or the reason why it does not."""
    content: dict[str, Any] = {name: reason is None}
    if reason is not None:
        content["error"] = reason
    body = json.dumps(content).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response("200 OK" if reason is None else "503 Service Unavailable", headers)
    return [body]
