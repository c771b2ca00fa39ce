"""The `infer` command: tensors of any model as JSON, over the Open Inference Protocol.

Datatypes come from the model's metadata, shapes from how the JSON is nested.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from commands.ask.asked import Asked
from commands.ask.options import console
from service.errors import InvalidArgument


def infer(
    asked: Asked,
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            envvar="ATTENDANT_INFER_INPUTS",
            help="Input tensor as NAME=JSON, including the batch axis: 'ids=[[1, 2, 3]]'. Give the "
            "flag once per input.",
        ),
    ],
) -> None:
    import numpy as np  # imported late: few commands need it

    from commands.ask.client.tensor_client import InferenceClient, nested

    call, values = asked.call(), _values(inputs)
    with InferenceClient(*asked.server) as client:
        outputs = client.infer(call.model, call.version, values)
    shown = {name: nested(array) for name, array in outputs.items()}
    if asked.as_json:
        print(json.dumps(shown, ensure_ascii=False))  # noqa: T201
        return
    table = Table("output", "shape", "values", show_lines=True)
    for name, array in outputs.items():
        text = np.array2string(np.array(shown[name]), precision=3, suppress_small=True)
        table.add_row(name, " ".join(map(str, array.shape)), text)
    console.print(table, markup=False)


def _values(inputs: Sequence[str]) -> dict[str, Any]:
    values = {}
    for given in inputs:
        name, is_given, text = given.partition("=")
        try:
            values[name] = json.loads(text)
        except json.JSONDecodeError as error:
            found = f"{error}" if is_given else "there is no '='"
            raise InvalidArgument(f"--input is '{given}', expected NAME=JSON: {found}") from error
    return values
