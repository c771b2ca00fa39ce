"""The server of a command that asks one, and the flags, consoles and texts that all have."""

import sys
import warnings
from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from commands.ask.client.access import (
    ACCESS_FLAGS,
    MAX_TIMEOUT_S,
    NO_ACCESS,
    Access,
    own_address,
    read_access,
)
from commands.ask.served import names_of_models
from commands.errors import errors
from commands.flags import argument, flag, parameter
from commands.pictures import MissingFontWarning, png_of
from service.errors import SettingError

console = Console()
SERVER_PANEL = "Server"
# What a server says of a text that is too long, and what a command says that has the flag.
TRUNCATION = "ask for truncation", "pass --truncate"
SEVERAL = "One or more texts; '-' reads texts from stdin, one per line, and skips empty lines."
MODEL = parameter(
    "model", str, typer.Argument(help="Name of a served model.", autocompletion=names_of_models)
)
TEXTS = argument("texts", list[str], SEVERAL)
FORMS = {
    "json": flag(
        "as_json",
        bool,
        False,
        "Print JSON instead of a table.",
        "ATTENDANT_JSON",
        spelt=("--json",),
    ),
    "ndjson": flag(
        "as_ndjson",
        bool,
        False,
        "Print one JSON object per text as answers arrive, with the text's line number.",
        "ATTENDANT_NDJSON",
        spelt=("--ndjson",),
    ),
}


class Server(NamedTuple):
    """The server that a command calls, and its time limit: the arguments of every client."""

    address: str
    timeout_s: float
    access: Access = NO_ACCESS


def server_flags(timeout_s: float) -> list[Parameter]:
    """The flags of a server: its address, how long to wait for it, and what it is shown."""
    address = typer.Option(
        "--address",
        "--server",
        default_factory=own_address,
        show_default="127.0.0.1:8001",
        help="HOST:PORT of the server's gRPC, or http[s]://HOST:PORT; by default gRPC's of a "
        "server with the same environment, $ATTENDANT_HOST and $ATTENDANT_GRPC_PORT.",
        envvar="ATTENDANT_ADDRESS",
        rich_help_panel=SERVER_PANEL,
    )
    wait = flag(
        "timeout_s",
        float,
        timeout_s,
        "Seconds to wait for the complete answer to a request. A full queue of texts takes less "
        "than 30 seconds; generation may take longer.",
        "ATTENDANT_TIMEOUT_S",
        panel=SERVER_PANEL,
        low=0.001,
        high=MAX_TIMEOUT_S,
    )
    access = [
        flag(
            each.name,
            Path | None if each.kind is Path else each.kind,
            None if each.kind is Path else "",
            each.help,
            each.variable,
            panel=SERVER_PANEL,
        )
        for each in ACCESS_FLAGS
    ]
    named = Parameter("address", Parameter.KEYWORD_ONLY, annotation=Annotated[str, address])
    return [named, wait, *access]


def read_server(values: dict[str, Any]) -> Server:
    """The server that flags name, which are taken out of the values. Raises `SettingError`."""
    access = read_access(**{each.name: values.pop(each.name) for each in ACCESS_FLAGS})
    return Server(values.pop("address"), values.pop("timeout_s"), access)


def is_stdin(given: Sequence[str]) -> bool:
    """Whether the texts are the lines of stdin. Raises `SettingError` for '-' among other texts."""
    if "-" in given and len(given) > 1:
        raise SettingError(
            "'-' is one of several texts, expected it alone: it reads the texts from stdin"
        )
    return list(given) == ["-"]


def given_texts(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments, or where they are '-', the lines of stdin. Raises `SettingError`."""
    if not is_stdin(arguments):
        return arguments
    return [line.rstrip("\n") for line in sys.stdin]


def plotted(figure: Any, dpi: int) -> bytes:
    """A figure as PNG; warns about characters that the fonts lack."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MissingFontWarning)
        content = png_of(figure, dpi)
    for each in caught:
        errors.print(Text.assemble(("warning: ", "yellow"), str(each.message)))
    return content


def write_plot(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise SettingError(f"--plot '{path}' cannot be written: {error.strerror}") from error
