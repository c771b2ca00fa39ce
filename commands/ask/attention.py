"""`attendant attention`: the attention weights of a text as a heat map."""

from pathlib import Path
from typing import Annotated

import typer

from commands.ask.asked import Asked
from commands.ask.options import write_plot


def attention(
    asked: Asked,
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
) -> None:
    # imports numpy, which only this command needs
    from commands.ask.shown.heat_map import HeatMap, picture, without_special

    with asked.client() as client:
        answer = client.ask(asked.call())
    drawn = without_special(answer) if is_special_hidden else answer
    if plot is not None:
        write_plot(plot, picture(drawn))
    asked.show(answer, lambda _: HeatMap(drawn))
