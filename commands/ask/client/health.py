"""`attendant healthcheck`: a health check for images, compose and probes; exit code 0 or 1.

Beside a server it needs no flags: it reads the server's own environment, where it listens and
which certificate it shows. It is run every few seconds, beside the server whose processors it
takes, so it imports gRPC, its health stubs and the standard library: no Typer, nothing of the
server.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from commands.ask.client.access import (
    ACCESS_FLAGS,
    MAX_TIMEOUT_S,
    Access,
    explained,
    is_http,
    open_channel,
    own_address,
    read_access,
)
from service.errors import AttendantError

MAX_REASON = 400  # characters
REASON_KEY = "attendant-reason-bin"  # of the server's trailing metadata: why it is not SERVING
LEAST_S = 0.001
# As `commands/errors.py` has it, which imports rich.
ERROR = "attendant: error: "
WRONG_USAGE = 2


def main(arguments: Sequence[str]) -> int:
    """0 if the server's gRPC health is SERVING, else 1; prints the status in one line."""
    flags = parser().parse_args(arguments)
    try:
        access = read_access(**{each.name: getattr(flags, each.name) for each in ACCESS_FLAGS})
        ask = _ask
        if is_http(flags.address):
            # Imported here, so that a check by gRPC starts without it.
            from commands.ask.client.health_http import ask_over_http

            ask = ask_over_http
        status, reason = ask(flags.address, flags.service, flags.timeout_s, access)
    except AttendantError as error:
        sys.stderr.write(f"{ERROR}{error}\n")
        return WRONG_USAGE
    words = flags.address, flags.service, status, reason[:MAX_REASON]
    sys.stdout.write(" ".join(word for word in words if word) + "\n")
    return int(status != "SERVING")


class Parser(argparse.ArgumentParser):
    """Prints wrong usage as the other commands do."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{ERROR}{message}. See '{self.prog} --help'.\n")


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        "attendant healthcheck",
        description="Check the server's health, by gRPC or HTTP: exit code 0 if SERVING, else 1.",
        allow_abbrev=False,
    )
    defaults = {"--address": own_address(), "--service": "", "--timeout-s": "2", "--tls-name": ""}
    for flag, variable, kind, text in FLAGS:
        default = os.environ.get(variable) or defaults.get(flag)  # read as the flag is
        names = (flag, *ALIASES.get(flag, ()))
        parser.add_argument(*names, type=kind, default=default, help=f"{text} [env: {variable}]")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_S <= seconds <= MAX_TIMEOUT_S:
        raise argparse.ArgumentTypeError(
            f"is {text}, expected {LEAST_S} to {MAX_TIMEOUT_S:,.0f} seconds"
        )
    return seconds


ALIASES = {"--address": ("--server",)}
FLAGS: tuple[tuple[str, str, Callable[[str], object], str], ...] = (
    (
        *("--address", "ATTENDANT_ADDRESS", str),
        "HOST:PORT of the server's gRPC, or http[s]://HOST:PORT; by default gRPC's of a server "
        "with the same environment.",
    ),
    (
        *("--service", "ATTENDANT_HEALTH_SERVICE", str),
        "Name of a model, 'readiness' or 'liveness'; empty means the whole server.",
    ),
    ("--timeout-s", "ATTENDANT_HEALTH_TIMEOUT_S", _seconds, "Seconds to wait; the default is 2."),
    *(
        (f"--{each.name.replace('_', '-')}", each.variable, each.kind, each.help)
        for each in ACCESS_FLAGS
    ),
)


def _ask(address: str, service: str, timeout_s: float, access: Access) -> tuple[str, str]:
    """The status that health or gRPC gives, and why in one line."""
    metadata = (("authorization", f"Bearer {access.token}"),) if access.token else ()
    request = health_pb2.HealthCheckRequest(service=service)
    with open_channel(address, access) as channel:
        try:
            check = health_pb2_grpc.HealthStub(channel).Check
            response, call = check.with_call(request, timeout=timeout_s, metadata=metadata)
            reasons = dict(call.trailing_metadata())
        except grpc.RpcError as error:
            return error.code().name, explained(error, address, timeout_s)[:MAX_REASON]
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
    return status, reasons.get(REASON_KEY, b"").decode()[:MAX_REASON]
