"""`attendant serve`: one flag for each of the server's settings."""

import asyncio
import inspect
import signal
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal

import typer

from commands.ask import tables
from commands.ask.client import try_models
from commands.ask.options import (
    console,
    errors,
)
from service.errors import SettingError
from service.settings import ONE_OF, Settings, join_address

LogLevel = Literal["debug", "info", "warning", "error"]


def serve(try_models: bool, log_level: str, **values: Any) -> None:
    """Serve a model repository until SIGTERM, then answer what was admitted and end."""
    signal.signal(signal.SIGTERM, _end)  # process 1 of a container has no other way to be ended
    from service.app import App  # heavy: only when serving
    from service.app import serve as serve_until_stopped
    from service.observe.logs import configure

    settings = Settings(**values)
    configure(settings.log_format, log_level, settings.max_log_repeats, errors)

    async def on_ready(served: App) -> None:
        address = join_address(settings.host, served.grpc_port)
        metrics = f"http://{join_address(settings.metrics_host, served.metrics_port)}/metrics"
        if try_models:
            await asyncio.to_thread(_try_models, address)
        console.print(f"gRPC [bold]{address}[/]   metrics [bold]{metrics}[/]", highlight=False)

    if try_models and (settings.tls_cert or settings.token_file or settings.restricted_protocols):
        raise SettingError("--try-models is set, expected neither TLS nor tokens nor keys with it")
    asyncio.run(serve_until_stopped(settings, on_ready))


def _end(*_: object) -> None:
    """Before there is anything to drain."""
    sys.exit(0)


def _try_models(address: str) -> None:
    console.print(tables.trials(try_models(address, timeout_s=60.0)))


def serve_command() -> Callable[..., None]:
    """`serve` with one flag per setting, as Typer reads them."""
    own = [
        _flag(
            "try_models", bool, False, "Ask each model that takes text its example, and show it."
        ),
        _flag("log_level", LogLevel, "info", "What to log: this and all that is graver."),
    ]
    settings = [
        _flag(
            setting.name,
            setting.type if isinstance(setting.type, type) else str,
            setting.default,
            setting.metadata["help"],
            min=setting.metadata["low"],
            max=setting.metadata["high"],
        )
        for setting in fields(Settings)
    ]

    def command(**values: Any) -> None:
        serve(**values)

    parameters = own + settings
    command.__doc__ = serve.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {flag.name: flag.annotation for flag in parameters}
    return command


def _flag(
    name: str,
    kind: object,  # a type, as Typer reads annotations
    default: object,
    text: str,
    **limits: Any,
) -> inspect.Parameter:
    bounds = {key: value for key, value in limits.items() if kind in (int, float)}
    option = typer.Option(
        default,
        help=text,
        envvar=f"ATTENDANT_{name.upper()}",
        show_default=True,
        autocompletion=(lambda: list(ONE_OF[name])) if name in ONE_OF else None,
        **bounds,
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


command = serve_command()
