"""Ports that are kept for gRPC until it listens on them.

gRPC's core listens as soon as it has a port, and clients would connect to a server that does not
answer yet. So the port is bound by a socket that does not listen, and refuses connections. Whether
it can be is found before gRPC tries it, which writes a line to stderr and gives no reason.
"""

import errno
import socket

from service.errors import LoadError
from service.settings import join_address


def check_port(host: str, port: int, purpose: str, flags: tuple[str, str]) -> None:
    """Raise `LoadError` unless an address of the host is free; `flags` name host and port."""
    keep_port(host, port, purpose, flags).close()


def keep_port(
    host: str, port: int, purpose: str, flags: tuple[str, str], *, is_shared: bool = False
) -> socket.socket:
    """A socket that is bound to an address of the host and does not listen.

    Another may listen there meanwhile if it sets SO_REUSEADDR, as gRPC's does; with `is_shared`
    several may listen, each of which sets SO_REUSEPORT. Raises `LoadError`; `flags` name host and
    port.
    """
    bare = host.removeprefix("[").removesuffix("]")
    refused = OSError()
    try:
        places = socket.getaddrinfo(
            bare or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, place in places:
            kept = socket.socket(family, kind, protocol)
            try:
                kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if is_shared:
                    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                kept.bind(place)
            except OSError as error:
                kept.close()
                refused = error
            else:
                return kept
    except OSError as error:  # the name of the host is unknown
        refused = error
    raise cannot_listen(join_address(host, port), purpose, flags, refused) from refused


def cannot_listen(address: str, purpose: str, flags: tuple[str, str], error: OSError) -> LoadError:
    """The error of an address that cannot be listened on, with the way out."""
    host_flag, port_flag = flags
    remedy = f"choose another address with {host_flag} and {port_flag}"
    if error.errno == errno.EADDRINUSE:
        remedy = f"stop the program that uses it, or choose another port with {port_flag}"
    reason = error.strerror or str(error)
    return LoadError(f"cannot listen on {address} for {purpose}: {reason}; {remedy}")
