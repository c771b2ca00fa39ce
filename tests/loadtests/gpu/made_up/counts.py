"""A section that counts how often it ran, and holds one claim."""

from loadtests.gpu.claims import at_least, at_most
from loadtests.gpu.context import Context, Findings


def run(context: Context) -> Findings:
    runs = context.work / "runs"
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    claims = [at_most("one is small", 1, 2, "things"), at_least("speed", 1, 2, kind="goal")]
    return {"summary": ["It ran."], "claims": claims, "left_s": context.left_s}
