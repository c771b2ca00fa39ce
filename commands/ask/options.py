"""Options, consoles and JSON output of the commands that call a server."""

import inspect
import json
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from commands.ask.client.access import (
    MAX_TIMEOUT_S,
    NO_ACCESS,
    Access,
    own_address,
    read_access,
)
from commands.ask.client.refusal import CallError
from commands.ask.served import names_of_models
from commands.errors import FAILURE, errors, print_error
from commands.pictures import MissingFontWarning, png_of
from service.errors import SettingError

console = Console()
SERVER_PANEL = "Server"
MAX_UINT32 = 2**32 - 1  # the largest number that most whole-number fields of requests hold
MAX_UINT64 = 2**64 - 1
# What a server says of a text that is too long, and what a command says that has the flag.
TRUNCATION = "ask for truncation", "pass --truncate"
# The start of what a server says of one of a request's texts, which it numbers from 0.
NUMBERED = re.compile(r"(text|context|image) (\d+) ")


class Server(NamedTuple):
    """The server that a command calls, and its time limit: the arguments of every client."""

    address: str
    timeout_s: float
    access: Access = NO_ACCESS


SERVER = Server("", 30.0)  # the address is that of the flag

Address = Annotated[
    str,
    typer.Option(
        "--address",
        "--server",
        default_factory=own_address,
        show_default="127.0.0.1:8001",
        help="HOST:PORT of the server's gRPC, or http[s]://HOST:PORT; by default gRPC's of a "
        "server with the same environment, $ATTENDANT_HOST and $ATTENDANT_GRPC_PORT.",
        envvar="ATTENDANT_ADDRESS",
        rich_help_panel=SERVER_PANEL,
    ),
]
TimeoutS = Annotated[
    float,
    typer.Option(
        min=0.001,
        max=MAX_TIMEOUT_S,
        envvar="ATTENDANT_TIMEOUT_S",
        rich_help_panel=SERVER_PANEL,
        help="Seconds to wait for the complete answer to a request. A full queue of texts takes "
        "less than 30 seconds; generation may take longer.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", envvar="ATTENDANT_JSON", help="Print JSON instead of a table."),
]
Model = Annotated[
    str, typer.Argument(help="Name of a served model.", autocompletion=names_of_models)
]
Texts = Annotated[
    list[str],
    typer.Argument(
        help="One or more texts; '-' reads texts from stdin, one per line, and skips empty lines."
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        envvar="ATTENDANT_TRUNCATE",
        help="Truncate texts that are longer than the model accepts, instead of refusing them.",
    ),
]
RawScores = Annotated[
    bool | None,
    typer.Option(
        envvar="ATTENDANT_RAW_SCORES",
        help="Show the model's logits, or with --no-raw-scores their sigmoids, from 0 to 1; by "
        "default what the model is made for.",
    ),
]
Version = Annotated[
    str,
    typer.Option(
        envvar="ATTENDANT_MODEL_VERSION",
        help="Version of the model; by default the highest version that is served.",
    ),
]

PromptName = Annotated[
    str,
    typer.Option(
        envvar="ATTENDANT_PROMPT_NAME",
        help="Name of the model's prompt to put in front of each text, e.g. query or document; by "
        "default the model's default prompt, if it has one. `attendant models --json` has them.",
    ),
]
Dimensions = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_UINT32,
        envvar="ATTENDANT_DIMENSIONS",
        help="Values per vector, of those that the model was trained for; 0 is all of them.",
    ),
]


def _file(name: str, text: str) -> Any:
    return typer.Option(help=text, envvar=f"ATTENDANT_CLIENT_{name}", rich_help_panel=SERVER_PANEL)


TlsCa = Annotated[
    Path | None,
    _file("TLS_CA", "PEM file of the authority that signs the server's certificate; turns TLS on."),
]
TlsCert = Annotated[Path | None, _file("TLS_CERT", "PEM file of the client certificate.")]
TlsKey = Annotated[Path | None, _file("TLS_KEY", "PEM file of the client certificate's key.")]
TlsName = Annotated[
    str,
    typer.Option(
        envvar="ATTENDANT_CLIENT_TLS_NAME",
        rich_help_panel=SERVER_PANEL,
        help="Name in the server's certificate, if it differs from the address.",
    ),
]
TokenFile = Annotated[
    Path | None,
    _file(
        "TOKEN_FILE",
        "File whose first line is the bearer token; without it, $ATTENDANT_TOKEN is used.",
    ),
]


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes TLS and token flags in place of its parameter `access`."""

    def read(
        tls_ca: TlsCa = None,
        tls_cert: TlsCert = None,
        tls_key: TlsKey = None,
        tls_name: TlsName = "",
        token_file: TokenFile = None,
    ) -> Access:
        return read_access(tls_ca, tls_cert, tls_key, tls_name, token_file)

    flags = inspect.signature(read).parameters

    def run(**values: Any) -> None:
        access = read(**{name: values.pop(name) for name in flags})
        command(**values, access=access)

    own = [p for p in inspect.signature(command).parameters.values() if p.name != "access"]
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in (*own, *flags.values())]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the flags of address, time limit and access in place of `server`."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "server"]
    default: Server = inspect.signature(command).parameters["server"].default

    def flags(
        address: Address,
        timeout_s: TimeoutS = default.timeout_s,
        access: Access = default.access,
    ) -> None: ...

    def run(address: str, timeout_s: float, access: Access, **values: Any) -> None:
        try:
            command(**values, server=Server(address, timeout_s, access))
        except CallError as error:
            text = _numbered_from_1(error.text, has_several=bool({"texts", "files"} & {*values}))
            if "truncate" in values:
                text = text.replace(*TRUNCATION)
            if "model" in values:
                from commands.ask.remedies import remedy  # protobuf messages, for errors only

                text += remedy(error, values["model"], address, timeout_s, access)
            print_error(f"{error.status}: {text}")
            raise typer.Exit(FAILURE) from error

    parameters = [*own, *inspect.signature(flags).parameters.values()]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
    )
    return with_access(run)


def _numbered_from_1(text: str, *, has_several: bool) -> str:
    """A refusal with the number that a user counts, or without one where there is one text."""

    def number(found: re.Match[str]) -> str:
        return f"{found[1]} {int(found[2]) + 1} " if has_several else f"the {found[1]} "

    return NUMBERED.sub(number, text, count=1) if NUMBERED.match(text) else text


def is_stdin(given: Sequence[str]) -> bool:
    """Whether the texts are the lines of stdin. Raises `SettingError` for '-' among other texts."""
    if "-" in given and len(given) > 1:
        raise SettingError(
            "'-' is one of several texts, expected it alone: it reads the texts from stdin"
        )
    return list(given) == ["-"]


def given_texts(arguments: list[str]) -> list[str]:
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


def show(message: Any, draw: Callable[[Any], Any], as_json: bool) -> None:
    """Print a message as JSON, or as the table that `draw` returns."""
    from commands.ask.message_json import json_fields  # protobuf

    if as_json:
        print(json.dumps(json_fields(message), ensure_ascii=False))  # noqa: T201
    else:
        console.print(draw(message))
