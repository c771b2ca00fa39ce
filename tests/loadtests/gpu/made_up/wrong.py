"""A section whose check does not hold."""

from loadtests.gpu.claims import at_most
from loadtests.gpu.context import Context, Findings


def run(context: Context) -> Findings:
    return {"claims": [at_most("error | of all", float("nan"), 1.0)]}
