"""A section whose check does not hold."""

from loadtests.gpu.context import Context


def run(context: Context) -> None:
    context.at_most("error | of all", float("nan"), 1.0)
    context.row("Figures", way="none", figure=float("nan"), seconds=0.01234)
