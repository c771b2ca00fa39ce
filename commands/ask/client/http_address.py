"""The address of an HTTP port, and what TLS to it trusts. Imports the standard library only."""

import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from commands.ask.client.access import Access
from service.errors import SettingError

DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_WAIT_S = 2e6  # 23 days: Python waits for a socket no longer


class HttpAddress(NamedTuple):
    """Address of an HTTP port."""

    scheme: str
    host: str  # without brackets
    port: int

    @property
    def has_tls(self) -> bool:
        return self.scheme == "https"


def http_address(address: str) -> HttpAddress:
    """The parts of `http[s]://HOST[:PORT]`. Raises `SettingError`."""
    scheme = address.partition(":")[0]
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or DEFAULT_PORTS[scheme]
        is_whole = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    except ValueError:  # a port that is no number, or a bracket too many
        is_whole = False
    if not is_whole or not host:
        raise SettingError(f"--address is '{address}', expected {scheme}://HOST:PORT")
    return HttpAddress(scheme, host, port)


def trust_of(access: Access) -> ssl.SSLContext:
    """Trust in the authority that the access names, or else in the machine's authorities.

    Raises `SettingError`.
    """
    trusted = access.tls_ca.decode(errors="replace") if access.tls_ca else None
    try:
        context = ssl.create_default_context(cadata=trusted)
        if access.pair is not None:
            context.load_cert_chain(*access.pair)
    except (OSError, ValueError) as error:  # `ssl.SSLError` is an OSError
        raise SettingError(f"a file of --tls-ca, --tls-cert or --tls-key: {error}") from error
    return context
