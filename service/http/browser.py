"""Rules for pages in a browser: no requests of other sites' pages, unless a setting allows it.

A page may send simple requests to any address without asking first, and by a name of its own that
leads here (DNS rebinding) even read the answers. Clients that are no browsers send neither `Origin`
nor `Sec-Fetch-Site`, and name the server as it is called. Pure.
"""

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from service.http.status import Headers, HttpError
from service.settings import Settings, listed

# Names that a page's author cannot make lead here: those without a dot, and these suffixes.
PRIVATE_SUFFIXES = (".localhost", ".svc", ".svc.cluster.local", ".internal")
OWN_SITES = (b"same-origin", b"none")
# Of an answer, what a page of an allowed site may read beside the headers that any may.
EXPOSED = (
    b"access-control-expose-headers",
    b"x-request-id, retry-after, retry-after-ms, x-attendant-not-enforced",
)
MAX_AGE = b"600"


@dataclass(frozen=True, slots=True)
class BrowserRules:
    """The rules of one server."""

    hosts: frozenset[str]  # beside those that are always taken; * for any
    origins: frozenset[str]  # other sites that may; * for any

    @classmethod
    def of(cls, settings: Settings) -> "BrowserRules":
        hosts = {*listed(settings.http_allowed_hosts), socket.gethostname().lower()}
        if settings.token_file:  # a page of another site has no token
            hosts.add("*")
        return cls(frozenset(hosts), frozenset(listed(settings.http_allowed_origins)))

    def check(self, headers: Mapping[bytes, bytes], *, is_page: bool = False) -> Headers:
        """Headers for the answer. Raises `HttpError`.

        A link of another site may lead to our own page, which is the same for all and can neither
        be framed nor read from there.
        """
        named = headers.get(b"host")
        host = (named or b"").decode("latin-1")
        if named is not None and not self._is_known(host):  # browsers name one
            raise HttpError(
                403,
                f"host '{host[:256]}' is not one of this server's: see --http-allowed-hosts",
                kind="permission_error",
                code="host_not_allowed",
            )
        origin = headers.get(b"origin")
        site = headers.get(b"sec-fetch-site")
        if origin is None:
            is_visit = is_page and headers.get(b"sec-fetch-mode") == b"navigate"
            if site is None or site in OWN_SITES or is_visit:
                return ()
            raise _foreign(None)
        text = origin.decode("latin-1")
        if "*" in self.origins or text.lower() in self.origins:
            return ((b"access-control-allow-origin", origin), (b"vary", b"origin"), EXPOSED)
        if site in OWN_SITES or (site is None and _host_of(text) == host.lower()):
            return ()
        raise _foreign(text)

    def preflight(self, headers: Mapping[bytes, bytes]) -> Headers:
        """Headers of the answer to a browser that asks what a page may send. Raises as `check`."""
        allowed = self.check(headers)
        if not allowed:
            raise _foreign(headers.get(b"origin", b"").decode("latin-1"))
        wanted = headers.get(b"access-control-request-headers", b"")
        return (
            *allowed,
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", MAX_AGE),
        )

    def _is_known(self, host: str) -> bool:
        if "*" in self.hosts:
            return True
        name = _without_port(host).lower().removesuffix(".")
        if not name:
            return False
        if "." not in name and ":" not in name:
            return True
        return name in self.hosts or name.endswith(PRIVATE_SUFFIXES) or _is_address(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def _host_of(origin: str) -> str:
    return origin.partition("://")[2].lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _foreign(origin: str | None) -> HttpError:
    site = "another site" if origin is None else f"'{origin[:256]}'"
    return HttpError(
        403,
        f"pages of {site} may not call this server: see --http-allowed-origins",
        kind="permission_error",
        code="origin_not_allowed",
    )
