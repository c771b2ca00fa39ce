"""The `attention` command: the attention weights of a text as a heat map."""

from pathlib import Path
from typing import Annotated

import typer
from attendant.v1 import features_pb2 as pb

from commands.ask.client.client import Client
from commands.ask.options import (
    MAX_UINT32,
    SERVER,
    AsJson,
    Model,
    Server,
    Version,
    asks,
    show,
    write_plot,
)


@asks
def attention(
    model: Model,
    text: Annotated[str, typer.Argument(help="Text that the model reads.")],
    target: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_TARGET", help="Encoder-decoders only: the output text for this input."
        ),
    ] = "",
    layer: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=MAX_UINT32,
            envvar="ATTENDANT_ATTENTION_LAYERS",
            help="Layer to show, counted from 0; may be given more than once. By default the mean "
            "of all layers.",
        ),
    ] = None,
    head: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            max=MAX_UINT32,
            envvar="ATTENDANT_HEADS",
            help="Head to show, counted from 0; may be given more than once. By default the mean "
            "of all heads.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            envvar="ATTENDANT_ATTENTION_PLOT",
            help="PNG file for the heat map; needs matplotlib.",
        ),
    ] = None,
    is_special_hidden: Annotated[
        bool,
        typer.Option(
            "--hide-special",
            envvar="ATTENDANT_HIDE_SPECIAL",
            help="Leave out special tokens, which often receive most of the weight; colors are "
            "then relative to the largest weight of the remaining tokens.",
        ),
    ] = False,
    version: Version = "",
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    # imports numpy, which only this command needs
    from commands.ask.shown.heat_map import HeatMap, picture, without_special

    request = pb.AttendRequest(
        model=model, version=version, text=text, target=target, layers=layer, heads=head
    )
    with Client(*server) as client:
        response = client.ask(request)
    drawn = without_special(response) if is_special_hidden else response
    if plot is not None:
        write_plot(plot, picture(drawn))
    show(response, lambda _: HeatMap(drawn), as_json)
