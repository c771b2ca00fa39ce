"""`attendant serve`: one flag for each of the server's settings."""

import asyncio
import signal
import sys
from typing import Any, Literal

from commands.ask.options import console
from commands.ask.trials import trial_table, try_models
from commands.errors import errors
from commands.flags import command_of, flag, flags_of
from service.errors import SettingError
from service.settings import Settings, join_address

PREFIX = "ATTENDANT"


def serve(try_models: bool, log_level: str, **values: Any) -> None:
    signal.signal(signal.SIGTERM, _end)  # process 1 of a container has no other way to be ended
    from service.app import App  # heavy: only when serving
    from service.app import serve as serve_until_stopped
    from service.observe.logs import configure

    settings = Settings(**values)
    configure(settings.log_format, log_level, settings.max_log_repeats, errors)

    async def on_ready(app: App) -> None:
        if try_models:
            await asyncio.to_thread(_try_models, join_address(settings.host, app.grpc_port))
        for line in address_lines(settings, app.grpc_port, app.metrics_port, app.http_port):
            console.print(line, highlight=False, soft_wrap=True)

    if try_models and (settings.tls_cert or settings.token_file or settings.restricted_protocols):
        raise SettingError("--try-models is set, expected neither TLS nor tokens nor keys with it")
    asyncio.run(serve_until_stopped(settings, on_ready))


def address_lines(
    settings: Settings, grpc_port: int, metrics_port: int, http_port: int | None
) -> list[str]:
    """The addresses in rich's markup; the last line is the one that programs wait for."""
    grpc = join_address(settings.host, grpc_port)
    metrics = f"http://{join_address(settings.metrics_host, metrics_port)}/metrics"
    lines = [f"gRPC [bold]{grpc}[/]   metrics [bold]{metrics}[/]"]
    if http_port is not None:
        scheme = "https" if settings.tls_cert else "http"
        http = join_address(settings.http_host or settings.host, http_port)
        page = "   a browser shows the models there" if settings.playground else ""
        lines.insert(0, f"HTTP [bold]{scheme}://{http}[/]{page}")
    return lines


def _end(*_: object) -> None:
    """Exit at once: before the server has started there is nothing to drain."""
    sys.exit(0)


def _try_models(address: str) -> None:
    console.print(trial_table(try_models(address, timeout_s=60.0)))


serve_command = command_of(
    serve,
    [
        *flags_of(Settings, PREFIX, has_limits=True),
        flag(
            "try_models",
            bool,
            False,
            "Send every loaded text model its example, and print the answers.",
            f"{PREFIX}_TRY_MODELS",
            panel="Models",
        ),
        flag(
            "log_level",
            Literal["debug", "info", "warning", "error"],
            "info",
            "Least severe level of messages to log.",
            f"{PREFIX}_LOG_LEVEL",
            panel="Logs and traces",
        ),
    ],
)
