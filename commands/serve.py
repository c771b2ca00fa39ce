"""`attendant serve`: one flag for each of the server's settings, and folders to serve.

docs/how-to/cuda.md says what was verified on CUDA.
"""

import asyncio
import signal
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.text import Text

from commands.ask.options import console
from commands.ask.trials import first_question, trial_table, try_models
from commands.errors import INTERRUPTED, errors
from commands.flags import argument, command_of, flag, flags_of
from commands.folders.settings import FolderSettings
from models.recipes.import_settings import ImportSettings
from service.contract.files import find_models
from service.errors import LoadError, SettingError
from service.open_ports import Opened
from service.settings import Settings, join_address

if TYPE_CHECKING:
    from commands.folders.preparing import Wishes

PREFIX, IMPORT = "ATTENDANT", "ATTENDANT_IMPORT"
FOLDERS = "Folders"  # the panel
OF_IMPORT_ALONE = ("adapter", "origin")
FOLDER_FLAGS = [
    *(field.name for field in fields(FolderSettings)),
    *(field.name for field in fields(ImportSettings) if field.name not in OF_IMPORT_ALONE),
]


def serve(sources: list[str] | None, adapter: list[str] | None, **values: Any) -> None:
    signal.signal(signal.SIGTERM, _end)  # process 1 of a container has no other way to be ended
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` has it
        signal.signal(signal.SIGHUP, _end)
    of_folders = {name: values.pop(name) for name in FOLDER_FLAGS}
    if not sources:
        if adapter:
            raise typer.BadParameter("needs its base: attendant serve BASE", param_hint="--adapter")
        _serve(**values)
        return
    if values["model_repository"] != Settings().model_repository:
        _check_has_models(values["model_repository"])  # before any export
        sources = [*sources, str(values["model_repository"])]
    from commands.folders.preparing import prepared
    from commands.folders.reports import Reports
    from commands.train.messages import messages

    with messages("serve"):
        wishes = _wishes(values, of_folders, adapter or [])
        try:
            with prepared(sources, wishes, Reports()) as (folder, targets):
                _serve(**{**values, "model_repository": folder, "link_targets": targets})
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error


def _check_has_models(repository: Path) -> None:
    """Raise `LoadError` for a model repository that is not there, or has no models."""
    if not find_models(repository):
        raise LoadError(
            f"model repository {repository} has no models: leave --model-repository out, or name "
            "one that attendant export wrote"
        )


def _wishes(values: Mapping[str, Any], of_folders: dict[str, Any], adapter: list[str]) -> "Wishes":
    """All that decides about exports. Raises `SettingError` and `ModelError`."""
    from commands.folders.preparing import Wishes
    from commands.folders.sources import parse_source
    from service.runtime.session import cuda_obstacle

    named = {field.name: of_folders.pop(field.name) for field in fields(FolderSettings)}
    imports = ImportSettings(**of_folders).to_dict()  # which checks them now
    defaults = ImportSettings().to_dict()
    changed = {name: value for name, value in imports.items() if value != defaults[name]}
    if "pair_template" in changed:  # the worker's folder is another, and the file's text counts
        changed["pair_template"] = str(Path(changed["pair_template"]).resolve())
    has_cuda = values["device"] != "cpu" and not cuda_obstacle()
    return Wishes(
        FolderSettings(**named),
        changed,
        values["precision"],
        "cuda" if has_cuda else "cpu",
        tuple(map(parse_source, adapter)),
    )


def _serve(try_models: bool, log_level: str, **values: Any) -> None:
    from service.app import serve as serve_until_stopped  # heavy: only when serving
    from service.observe.logs import configure

    settings = Settings(**values)
    configure(settings.log_format, log_level, settings.max_log_repeats, errors)

    async def on_ready(server: Opened) -> None:
        ports = server.ports
        address = join_address(settings.host, ports.grpc)
        if try_models:
            await asyncio.to_thread(_try_models, address)
        questions = (first_question(*model, address) for model in server.models)
        if question := next(filter(None, questions), ""):
            console.print(Text(f"try: {question}"), soft_wrap=True)
        for line in address_lines(settings, ports.grpc, ports.metrics, ports.http):
            console.print(line, highlight=False, soft_wrap=True)

    if try_models and (settings.tls_cert or settings.token_file or settings.restricted_protocols):
        raise SettingError("--try-models is set, expected neither TLS nor tokens nor keys with it")
    if settings.processes > 1:
        from commands.processes.supervisor import Supervisor

        asyncio.run(Supervisor(settings, log_level).run(on_ready))
    else:
        asyncio.run(serve_until_stopped(settings, lambda app: on_ready(app.opened)))


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
        argument(
            "sources",
            list[str],
            "Folders and hub ids to serve, each as NAME=FOLDER or as FOLDER, whose last part is "
            "the name then; of hub ids ID@REVISION too. They are imported and exported at the "
            "first start, and kept. A model repository among them is served beside, as is one "
            "that --model-repository names. Without any, --model-repository is served.",
            is_optional=True,
        ),
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
        flag(
            "adapter",
            list[str] | None,
            None,
            "LoRA adapter of PEFT to serve beside its base, as NAME=FOLDER or as FOLDER. May be "
            "given several times.",
            f"{PREFIX}_SERVE_ADAPTER",
            panel=FOLDERS,
            shown="none",
        ),
        *flags_of(FolderSettings, f"{PREFIX}_FOLDERS", panel=FOLDERS),
        *flags_of(ImportSettings, IMPORT, omit=OF_IMPORT_ALONE, panel=FOLDERS),
    ],
)
