"""The `attention` command: a text in, where its tokens look as a heat map out."""

from pathlib import Path
from typing import Annotated

import typer
from attendant.v1 import features_pb2 as pb

from commands.ask.client import Client
from commands.ask.options import SERVER, AsJson, Model, Server, Version, asks, show, write_plot


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
    is_special_hidden: Annotated[
        bool,
        typer.Option(
            "--hide-special",
            envvar="ATTENDANT_HIDE_SPECIAL",
            help="Draw no special tokens, which often take most of the weight; a row is then "
            "darkest where it looks most among the others.",
        ),
    ] = False,
    version: Version = "",
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    """Show what a served model looks at: attending to the right thing is no reason yet."""
    # heavy, and all commands are read together
    from commands.ask.heat_map import HeatMap, picture, without_special

    request = pb.AttendRequest(
        model=model, version=version, text=text, target=target, layers=layer, heads=head
    )
    with Client(*server) as client:
        response = client.ask(request)
    drawn = without_special(response) if is_special_hidden else response
    if plot is not None:
        write_plot(plot, picture(drawn))
    show(response, lambda _: HeatMap(drawn), as_json)
