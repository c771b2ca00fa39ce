"""A section that raises."""

from loadtests.gpu.context import Context


def run(context: Context) -> None:
    context.check("what was found before it raised", True)
    raise RuntimeError(f"{context.section} was made to fail")
