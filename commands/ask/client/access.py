"""A client's TLS and token, the channels opened with them, and texts for calls that fail.

Imports only gRPC, and this where a channel is opened: the health check and the flags of every
command, which must start quickly, use it too.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from service.errors import SettingError

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True, slots=True)
class Access:
    """Certificates, token and the server's name; by default none of them."""

    tls_ca: bytes | None = None  # PEM, as the next two; None: a plain connection
    tls_cert: bytes | None = None
    tls_key: bytes | None = field(default=None, repr=False)
    pair: tuple[Path, Path] | None = None  # the files of these two, which HTTP reads
    token: str = field(default="", repr=False)
    tls_name: str = ""  # that the server's certificate must have; empty: the address's


NO_ACCESS = Access()
MAX_TIMEOUT_S = 1e9  # 31 years; with 1e12, gRPC ends a call at once
# Addresses as gRPC spells them beside HOST:PORT: by the name of what resolves them.
SCHEMES = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:")
TOKEN = re.compile(r"[!-~]*")  # what a header may carry
HOST_AND_PORT = re.compile(r"(?:[^:\[\]/\s]+|\[[^\[\]\s]+\]):(\d{1,5})")
# Where a server that listens everywhere is found on its own machine.
LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
NOT_CONNECTED = ("failed to connect to all addresses", "errors resolving", "DNS resolution failed")
SPEAKS_HTTP = "connect an http1.x server"


class AccessFlag(NamedTuple):
    """A flag of TLS or of a token, of every command and of the health check."""

    name: str
    kind: type  # a path may be left out
    help: str

    @property
    def variable(self) -> str:
        return f"ATTENDANT_CLIENT_{self.name.upper()}"


ACCESS_FLAGS = (
    AccessFlag(
        "tls_ca",
        Path,
        "PEM file of the authority that signs the server's certificate; turns TLS on.",
    ),
    AccessFlag("tls_cert", Path, "PEM file of the client certificate."),
    AccessFlag("tls_key", Path, "PEM file of the client certificate's key."),
    AccessFlag(
        "tls_name", str, "Name in the server's certificate, if it differs from the address."
    ),
    AccessFlag(
        "token_file",
        Path,
        "File whose first line is the bearer token; without it, $ATTENDANT_TOKEN is used.",
    ),
)


def open_channel(
    address: str, access: Access, options: Sequence[tuple[str, int | str]] = ()
) -> "grpc.Channel":
    """A channel with TLS where `access` has a certificate to trust. Raises `SettingError`."""
    import grpc

    if not _is_address(address):
        raise SettingError(f"--address is '{address}', expected HOST:PORT or http://HOST:PORT")
    if access.tls_ca is None:
        return grpc.insecure_channel(address, options)
    if access.tls_name:
        options = [*options, ("grpc.ssl_target_name_override", access.tls_name)]
    credentials = grpc.ssl_channel_credentials(access.tls_ca, access.tls_key, access.tls_cert)
    return grpc.secure_channel(address, credentials, options)


def is_http(address: str) -> bool:
    """Whether an address is that of an HTTP port."""
    return address.startswith(("http://", "https://"))


def _is_address(text: str) -> bool:
    """Whether the text names a port: gRPC itself would take 443 for none, and a port for a host."""
    found = HOST_AND_PORT.fullmatch(text)
    return text.startswith(SCHEMES) or (found is not None and 0 < int(found[1]) < 2**16)


def own_address() -> str:
    """The address at which a server with this environment listens."""
    host = os.environ.get("ATTENDANT_HOST", "127.0.0.1")
    host = LOCAL.get(host, host)
    port = os.environ.get("ATTENDANT_GRPC_PORT", "8001")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_access(
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_name: str,
    token_file: Path | None,
) -> Access:
    """The TLS files and token that a command's flags name. Raises `SettingError`.

    Without them, the certificate of a server with the same environment is trusted.
    """
    if tls_ca is None and (tls_cert or tls_key):
        raise SettingError("--tls-cert is set, expected --tls-ca with it: TLS is off")
    if (tls_cert is None) != (tls_key is None):
        raise SettingError("--tls-cert and --tls-key must both be set, or neither")
    return Access(
        tls_ca=read("tls-ca", tls_ca) if tls_ca else _own_certificate(),
        tls_cert=read("tls-cert", tls_cert) if tls_cert else None,
        tls_key=read("tls-key", tls_key) if tls_key else None,
        pair=(tls_cert, tls_key) if tls_cert and tls_key else None,
        token=_token(token_file),
        tls_name=tls_name,
    )


def _own_certificate() -> bytes | None:
    path = os.environ.get("ATTENDANT_TLS_CERT", "")
    return read("tls-cert", Path(path)) if path else None


def explained(error: "grpc.RpcError", address: str, timeout_s: float) -> str:
    """Why a call failed, and what can be done where that is up to the caller; in one line."""
    import grpc

    text = " ".join((error.details() or "").split())
    if error.code() is grpc.StatusCode.UNAVAILABLE and text.startswith(NOT_CONNECTED):
        reason = text.rpartition("last error: ")[2]
        if SPEAKS_HTTP in reason:
            return (
                f"{address} speaks HTTP/1.1: an address of HTTP is http://{address}, and gRPC's "
                "port is by default 8001"
            )
        return (
            f"no server answers at {address}: start one by 'attendant serve', name another by "
            f"--address, or give --tls-ca where it has TLS ({reason})"
        )
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and text == "Deadline Exceeded":
        return f"{address} gave no answer within {timeout_s:g} s, which --timeout-s allows"
    return text


def read(flag: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(f"--{flag} '{path}' cannot be read: {error.strerror}") from error


def _token(path: Path | None) -> str:
    if path is None:
        source, token = "ATTENDANT_TOKEN", os.environ.get("ATTENDANT_TOKEN", "")
    else:
        lines = map(str.strip, read("token-file", path).decode(errors="replace").splitlines())
        source = f"--token-file '{path}'"
        token = next((line for line in lines if line and not line.startswith("#")), "")
    if not TOKEN.fullmatch(token):
        raise SettingError(f"{source} has a token that is not visible ASCII without spaces")
    return token
