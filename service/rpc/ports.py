"""Whether a port can be listened on, found before gRPC tries it.

gRPC's core writes a line of its own to stderr where it cannot listen, and gives no reason.
"""

import errno
import socket

from service.errors import LoadError
from service.settings import join_address


def check_port(host: str, port: int, purpose: str, flags: tuple[str, str]) -> None:
    """Raise `LoadError` unless an address of the host is free; `flags` name host and port."""
    bare = host.removeprefix("[").removesuffix("]")
    refused = OSError()
    try:
        places = socket.getaddrinfo(
            bare or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, place in places:
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(place)
                    return
            except OSError as error:
                refused = error
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
