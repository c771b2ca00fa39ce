"""The `attention` command: a text in, where its tokens look as a heat map out."""

from pathlib import Path
from typing import Annotated

import typer
from attendant.v1 import features_pb2 as pb

from service.cli_common import (
    SERVER,
    AsJson,
    Model,
    Server,
    Version,
    asks,
    show,
    write_plot,
)
from service.client import FeatureClient


@asks
def attention(
    model: Model,
    text: Annotated[str, typer.Argument(help="What the model reads.")],
    target: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_TARGET", help="Of an encoder-decoder: what it wrote of the text."
        ),
    ] = "",
    layer: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            envvar="ATTENDANT_LAYERS",
            help="From 0; once for each. By default the mean of all.",
        ),
    ] = None,
    head: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            envvar="ATTENDANT_HEADS",
            help="From 0; once for each. By default the mean of all.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            envvar="ATTENDANT_PLOT", help="PNG file for the heat map too; needs matplotlib."
        ),
    ] = None,
    version: Version = "",
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    """Show what a served model looks at: attending to the right thing is no reason yet."""
    from service.heat_map import heat_map, picture  # heavy, and all commands are read together

    request = pb.AttendRequest(
        model=model, version=version, text=text, target=target, layers=layer, heads=head
    )
    with FeatureClient(*server) as client:
        response = client.attend(request)
    if plot is not None:
        write_plot(plot, picture(response))
    show(response, heat_map, as_json)
