"""A section that raises."""

from loadtests.gpu.context import Context, Findings


def run(context: Context) -> Findings:
    raise RuntimeError(f"{context.section} was made to fail")
