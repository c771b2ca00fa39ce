"""A section that counts how often it ran, and holds one claim."""

from loadtests.gpu.context import Context


def run(context: Context) -> None:
    context.run.work.mkdir(parents=True, exist_ok=True)
    runs = context.run.work / "runs"
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    context.summarize("It ran.")
    context.at_most("one is small", 1, 2, "things")
    context.at_least("speed", 1, 2, kind="goal")
    context.findings["left_s"] = context.left_s
