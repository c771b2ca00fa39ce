"""Compare every row with transformers, through the server, and write the table of the outcomes.

    python -m tests.decoders                              print the table
    python -m tests.decoders --write                      and put it into docs/reference/models.md

Ends with 1 where a row differs.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import grpc
import transformers
import typer

from tests.decoders.comparison import (
    MAX_DIFFERENCE,
    NUM_TOKENS,
    TEXTS,
    first_other,
    imported,
    largest_difference,
    write_version,
    written,
)
from tests.decoders.rows import ROWS, TRACED, Row, write_folders
from tests.e2e.server import ServerProcess

DOCUMENT = Path(__file__).parents[2] / "docs/reference/models.md"
BEGIN, END = "<!-- written by python -m tests.decoders --write -->", "<!-- end of the table -->"
HEADER = (
    "| model_type | checkpoints | compared network | logits differ by | "
    f"{NUM_TOKENS} greedy tokens of the server |",
    "|---|---|---|---|---|",
)


def main(
    only: Annotated[list[str] | None, typer.Argument(help="Values of model_type.")] = None,
    write: Annotated[bool, typer.Option("--write", help=f"Put it into {DOCUMENT.name}.")] = False,
) -> None:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as name:
        rows = [row for row in (*ROWS, *TRACED) if not only or row.kind in only]
        lines, has_failed = compared(Path(name), rows)
    version = f"With transformers {transformers.__version__}:"
    table = "\n".join([version, "", *HEADER, *lines])
    typer.echo(table)
    if write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        text = f"{before}{BEGIN}\n{table}\n{END}{after}"
        DOCUMENT.write_text(text, encoding="utf-8")
    sys.exit(has_failed)


def compared(folder: Path, rows: Sequence[Row]) -> tuple[list[str], bool]:
    """A line for each row, and whether any differs."""
    networks = write_folders(rows, folder / "hub")
    differences = {}
    for row in rows:
        checkpoint = imported(row, folder / "hub" / row.name, folder / "checkpoints" / row.name)
        differences[row.name] = largest_difference(checkpoint, networks[row.name])
        write_version(row, checkpoint, folder / "repository")
    with (
        ServerProcess(folder / "repository") as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        answers = written(channel, list(networks))
    lines, has_failed = [], False
    for row in rows:
        others = [
            first_other(networks[row.name], text, ids)
            for text, ids in zip(TEXTS, answers[row.name], strict=True)
        ]
        differing = [place for place in others if place is not None]
        outcome = f"**other from token {min(differing)} on**" if differing else "equal"
        difference = differences[row.name]
        has_failed |= bool(differing) or not difference < MAX_DIFFERENCE
        lines.append(
            f"| `{row.kind}` | {row.checkpoints} | {row.form} | {difference:.0e} | {outcome} |"
        )
    return lines, has_failed


if __name__ == "__main__":
    typer.run(main)
