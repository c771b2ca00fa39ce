"""The same health check over HTTP, for `attendant healthcheck --address http://HOST:PORT`.

Imports the standard library only, and is itself imported where an address says HTTP: gRPC's check
starts without it.
"""

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import create_connection
from urllib.parse import quote, urlsplit

from commands.ask.access import Access
from service.errors import SettingError

PATHS = {"": "/v2/health/ready", "readiness": "/v2/health/ready", "liveness": "/v2/health/live"}
MAX_BODY_BYTES = 4_096
DEFAULT_PORTS = {"http": 80, "https": 443}


def ask_over_http(
    address: str, service: str, timeout_s: float, access: Access, pair: tuple[Path, Path] | None
) -> tuple[str, str]:
    """SERVING or the HTTP status, and the reason in one line; `pair` is the client's certificate.

    Raises `SettingError`.
    """
    parts = urlsplit(address)
    try:
        port = parts.port or DEFAULT_PORTS[parts.scheme]
    except ValueError:
        port = 0
    if not parts.hostname or not port or parts.path.strip("/"):
        raise SettingError(f"--address is '{address}', expected {parts.scheme}://HOST:PORT")
    path = PATHS.get(service) or f"/v2/models/{quote(service, safe='')}/ready"
    headers = {"authorization": f"Bearer {access.token}"} if access.token else {}
    connection = HTTPConnection(parts.hostname, port, timeout=timeout_s)
    try:
        if parts.scheme == "https":
            raw = create_connection((parts.hostname, port), timeout_s)
            name = access.tls_name or parts.hostname
            connection.sock = _context(access, pair).wrap_socket(raw, server_hostname=name)
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


def _context(access: Access, pair: tuple[Path, Path] | None) -> ssl.SSLContext:
    """Trust in what the access names, or else in the machine's authorities."""
    trusted = access.tls_ca.decode() if access.tls_ca else None
    context = ssl.create_default_context(cadata=trusted)
    if pair is not None:
        context.load_cert_chain(*pair)
    return context
