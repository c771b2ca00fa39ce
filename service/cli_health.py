"""`attendant healthcheck`: one word for images, compose and probes; exit code 0 or 1.

Beside a server it needs no flags: it reads the server's own environment, where it listens and
which certificate it shows. Starts quickly, since it is run every few seconds: of the server
it imports nothing.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import grpc
import typer

from service.cli_common import console, with_access
from service.client import NO_ACCESS, Access, HealthClient
from service.errors import SettingError

# Where a server that listens everywhere is found on its own machine.
LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
MAX_REASON = 200  # characters


def own_address() -> str:
    """Where a server with our environment listens."""
    host = os.environ.get("ATTENDANT_HOST", "127.0.0.1")
    host = LOCAL.get(host, host)
    port = os.environ.get("ATTENDANT_GRPC_PORT", "8001")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@with_access
def healthcheck(
    address: Annotated[
        str,
        typer.Option(
            default_factory=own_address,
            envvar="ATTENDANT_ADDRESS",
            show_default="$ATTENDANT_HOST:$ATTENDANT_GRPC_PORT, or 127.0.0.1:8001",
            help="HOST:PORT of the server; the default is a server with our environment.",
        ),
    ],
    service: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_HEALTH_SERVICE",
            help="A model's name, 'readiness' or 'liveness'; empty asks for the whole server.",
        ),
    ] = "",
    timeout_s: Annotated[
        float,
        typer.Option(min=0.001, envvar="ATTENDANT_HEALTH_TIMEOUT_S", help="Seconds to wait."),
    ] = 2.0,
    access: Access = NO_ACCESS,
) -> None:
    """Ask gRPC health: exit code 0 if it says SERVING, else 1."""
    status, reason = _ask(address, service, timeout_s, _own(access))
    console.print(f"{address} {service}".rstrip(), status, reason, soft_wrap=True, markup=False)
    if status != "SERVING":
        raise typer.Exit(1)


def _ask(address: str, service: str, timeout_s: float, access: Access) -> tuple[str, str]:
    """The status that health or gRPC gives, and why in one line."""
    with HealthClient(address, timeout_s, access) as client:
        try:
            return client.status(service), ""
        except grpc.RpcError as error:
            reason = " ".join((error.details() or "").split())
            return error.code().name, reason[:MAX_REASON]


def _own(access: Access) -> Access:
    """With the certificate of a server that has our environment, where none else is given."""
    path = os.environ.get("ATTENDANT_TLS_CERT", "")
    if not path or access.tls_ca is not None:
        return access
    try:
        return replace(access, tls_ca=Path(path).read_bytes())
    except OSError as error:
        raise SettingError(f"--tls-cert '{path}' cannot be read: {error.strerror}") from error
