"""The `attendant` command: argv and environment in, tables or JSON out.

`train`, `pretrain`, `import` and `export` live with the packages that do the work and are
found by their entry points (group `attendant.commands`), so that serving neither imports
nor needs them. Flags of `serve` are drawn from `Settings`, one each.
"""

import asyncio
import inspect
import signal
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

import grpc
import typer
from rich.text import Text

from service import __version__, tables
from service.cli_attention import attention
from service.cli_common import (
    SERVER,
    AsJson,
    Model,
    Server,
    Texts,
    Truncate,
    Version,
    asks,
    console,
    errors,
    show,
)
from service.cli_features import features, similarity
from service.cli_fill import fill_mask
from service.cli_generate import generate
from service.cli_health import main as check_health
from service.cli_infer import infer
from service.cli_reading import answer, classify_tokens
from service.cli_texts import AsNdjson, answer_texts
from service.cli_vision import classify_image
from service.client import TextClient, try_models
from service.errors import AttendantError, SettingError
from service.settings import ONE_OF, Settings, join_address

app = typer.Typer(
    help="Serve transformer models over gRPC.", no_args_is_help=True, pretty_exceptions_enable=False
)
LogLevel = Literal["debug", "info", "warning", "error"]


def add_commands() -> None:
    """Those of other packages, where they are installed."""
    for command in sorted(entry_points(group="attendant.commands"), key=lambda point: point.name):
        loaded = command.load()
        if isinstance(loaded, typer.Typer):  # of commands of its own
            app.add_typer(loaded, name=command.name)
        else:
            app.command(command.name)(loaded)


def main() -> None:
    """Entry point of the console script."""
    add_commands()
    try:
        app()
    except AttendantError as error:
        errors.print(Text.assemble(("error: ", "red"), str(error)))
        sys.exit(1)
    except grpc.RpcError as error:
        errors.print(Text.assemble((f"{error.code().name}: ", "red"), error.details() or ""))
        sys.exit(1)


@app.command()
@asks
def models(
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    """List the models that a server offers."""
    with TextClient(*server) as client:
        show(client.list_models(), tables.models, as_json)


@app.command()
@asks
def classify(
    model: Model,
    texts: Texts,
    top_k: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="ATTENDANT_TOP_K",
            help="Labels per text, best first; 0, the default, prints all of them.",
        ),
    ] = 0,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    """Ask a served classifier for the labels of texts."""
    with TextClient(*server) as client:
        answer_texts(
            texts,
            server.timeout_s,
            lambda part: client.classify(
                model, part, version=version, top_k=top_k, truncate=truncate
            ),
            tables.classifications,
            as_json=as_json,
            as_ndjson=as_ndjson,
        )


@app.command()
@asks
def embed(
    model: Model,
    texts: Texts,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    """Ask a served embedder for the vectors of texts, and show how similar they are."""
    with TextClient(*server) as client:
        answer_texts(
            texts,
            server.timeout_s,
            lambda part: client.embed(model, part, version=version, truncate=truncate),
            tables.embeddings,
            as_json=as_json,
            as_ndjson=as_ndjson,
            draw_rows=tables.vectors,
        )


def serve(try_models: bool, log_level: str, **values: Any) -> None:  # noqa: ANN401
    """Serve a model repository until SIGTERM, then answer what was admitted and end."""
    signal.signal(signal.SIGTERM, _end)  # process 1 of a container has no other way to be ended
    from service.app import App  # heavy: only when serving
    from service.app import serve as serve_until_stopped
    from service.logs import configure

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


def _serve_command() -> Callable[..., None]:
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

    def command(**values: Any) -> None:  # noqa: ANN401
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
    **limits: Any,  # noqa: ANN401
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


app.command("serve")(_serve_command())
app.command("generate")(generate)
app.command("features")(features)
app.command("similarity")(similarity)
app.command("infer")(infer)
app.command("fill-mask")(fill_mask)
app.command("classify-tokens")(classify_tokens)
app.command("answer")(answer)
app.command("classify-image")(classify_image)
app.command("attention")(attention)


@app.command(
    "healthcheck",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _healthcheck(context: typer.Context) -> None:
    """Ask gRPC health: exit code 0 if it says SERVING, else 1."""
    raise typer.Exit(check_health(context.args))


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        console.print(__version__, highlight=False)
        raise typer.Exit
