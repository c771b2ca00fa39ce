"""Import, export and serve every row, compare the answers, and write the table of the outcomes.

    python -m tests.checkpoints                           print the table
    python -m tests.checkpoints --write                   and put it into docs/reference/models.md

Ends with 1 where an answer differs. A row that is refused has the error, which names the way out.
"""

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import grpc
import transformers
import typer

from commands.folders.importing import imported
from export.errors import ExportError
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.errors import ModelError
from models.recipes.import_settings import ImportSettings
from tests.checkpoints.comparison import COMPARISONS
from tests.checkpoints.rows import ROWS, Row
from tests.e2e.server import ServerProcess

DOCUMENT = Path(__file__).parents[2] / "docs/reference/models.md"
BEGIN, END = (
    "<!-- written by python -m tests.checkpoints --write -->",
    "<!-- end of checkpoints -->",
)
HEADER = (
    "| model_type | head | checkpoints | form | the server's answers |",
    "|---|---|---|---|---|",
)
KNOWN_TYPES = re.compile(", but must be one of [^;]*")  # too long for a cell
MAX_DIFFERENCE = 1e-4  # of probabilities, and of vectors of length 1


def main(
    write: Annotated[bool, typer.Option("--write", help=f"Put it into {DOCUMENT.name}.")] = False,
) -> None:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as name:
        outcomes = compared(ROWS, Path(name))
    lines = [line_of(row, outcomes[row.name]) for row in ROWS]
    num_served = sum(isinstance(outcome, float) for outcome in outcomes.values())
    count = (
        f"With transformers {transformers.__version__}, {num_served} of {len(ROWS)} are served and "
        f"{len(ROWS) - num_served} are refused:"
    )
    table = "\n".join([count, "", *HEADER, *lines])
    typer.echo(table)
    if write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        text = f"{before}{BEGIN}\n{table}\n{END}{after}"
        DOCUMENT.write_text(text, encoding="utf-8")
    sys.exit(any(map(is_wrong, outcomes.values())))


def compared(rows: Sequence[Row], folder: Path) -> dict[str, float | str]:
    """By the rows' names the largest difference of an answer, or why the checkpoint is refused."""
    networks: dict[str, Any] = {}
    outcomes: dict[str, float | str] = {}
    for row in rows:
        hub = folder / "hub" / row.name
        network = row.write(hub)
        try:
            made = imported(load_checkpoint(hub), row.name, ImportSettings())
            save_checkpoint(made, folder / "checkpoints" / row.name)
            checkpoint = load_checkpoint(folder / "checkpoints" / row.name)
            export_any(checkpoint, ExportSettings(row.name, folder / "repository", "fp32"))
        except (ModelError, ExportError) as error:
            outcomes[row.name] = str(error).removeprefix(f"{hub}/")
        else:
            networks[row.name] = network
    with (
        ServerProcess(folder / "repository") as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        for row in rows:
            if row.name in networks:
                compare = COMPARISONS[row.head]
                outcomes[row.name] = compare(row, networks[row.name], channel)
    return outcomes


def is_wrong(outcome: float | str) -> bool:
    """Whether a row is served and differs."""
    return isinstance(outcome, float) and not outcome < MAX_DIFFERENCE


def line_of(row: Row, outcome: float | str) -> str:
    if isinstance(outcome, str):
        answers = f"refused: {KNOWN_TYPES.sub(', which is not known', outcome)}"
    else:
        answers = f"**differ by {outcome:.0e}**" if is_wrong(outcome) else f"within {outcome:.0e}"
    cells = (f"`{row.kind}`", row.head, row.checkpoints, row.form, answers)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    typer.run(main)
