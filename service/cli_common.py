"""What the commands that ask a server share: options, consoles, and JSON in place of tables."""

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict
from rich.console import Console

console = Console()
errors = Console(stderr=True)
DEFAULT_ADDRESS = "127.0.0.1:8001"

Address = Annotated[
    str,
    typer.Option(
        help="HOST:PORT of the server; the default is where `attendant serve` listens.",
        envvar="ATTENDANT_ADDRESS",
    ),
]
TimeoutS = Annotated[
    float,
    typer.Option(
        min=0.001,
        envvar="ATTENDANT_TIMEOUT_S",
        help="Seconds to wait for the whole answer: a full queue of texts takes less than 30, "
        "generating may take longer.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", envvar="ATTENDANT_JSON", help="Print JSON; a table is for people."),
]
Model = Annotated[str, typer.Argument(help="Name of a served model.", envvar="ATTENDANT_MODEL")]
Version = Annotated[
    str,
    typer.Option(
        envvar="ATTENDANT_MODEL_VERSION",
        help="Version of the model; by default the highest one served.",
    ),
]


def show(message: Any, draw: Callable[[Any], Any], as_json: bool) -> None:  # noqa: ANN401
    """Print a message as JSON, or as what `draw` makes of it."""
    if as_json:
        fields_by_name = MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        print(json.dumps(fields_by_name, ensure_ascii=False))  # noqa: T201
    else:
        console.print(draw(message))
