"""Health check over HTTP, for `attendant healthcheck --address http://HOST:PORT`.

Imports the standard library only, and is itself imported where an address says HTTP: gRPC's check
starts without it.
"""

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from socket import create_connection
from urllib.parse import quote

from commands.ask.client.access import Access
from commands.ask.client.http_address import MAX_WAIT_S, http_address, trust_of

PATHS = {"": "/v2/health/ready", "readiness": "/v2/health/ready", "liveness": "/v2/health/live"}
MAX_BODY_BYTES = 4_096


def ask_over_http(address: str, service: str, timeout_s: float, access: Access) -> tuple[str, str]:
    """SERVING or the HTTP status, and the reason in one line. Raises `SettingError`."""
    _, host, port = parts = http_address(address)
    context = trust_of(access) if parts.has_tls else None
    wait_s = min(timeout_s, MAX_WAIT_S)
    path = PATHS.get(service) or f"/v2/models/{quote(service, safe='')}/ready"
    headers = {"authorization": f"Bearer {access.token}"} if access.token else {}
    connection = HTTPConnection(host, port, timeout=wait_s)
    try:
        if context is not None:
            raw = create_connection((host, port), wait_s)
            connection.sock = context.wrap_socket(raw, server_hostname=access.tls_name or host)
        return _answer(connection, path, headers)
    except (OSError, HTTPException) as error:
        return "UNAVAILABLE", " ".join(str(error).split()) or type(error).__name__
    finally:
        connection.close()


def _answer(connection: HTTPConnection, path: str, headers: Mapping[str, str]) -> tuple[str, str]:
    connection.request("GET", path, headers=dict(headers))
    response = connection.getresponse()
    body = response.read(MAX_BODY_BYTES)
    if response.status == 200:
        return "SERVING", ""
    try:
        reason = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        reason = response.reason
    return str(response.status), " ".join(str(reason).split())
