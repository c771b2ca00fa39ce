"""Trace and compare networks of transformers of every model_type that writes texts, as a table.

    python -m tests.traced                        every type; half an hour on two cores
    python -m tests.traced glm4 gpt_oss           these types
    python -m tests.traced --output rows.md       and put the table into a file

Networks are small and random. A type is taken, with the largest difference of its logits from
transformers' and the share of 64 greedy tokens that are others, alone, in company and in chunks; or
it is refused with the reason. Ends with 1 where a graph was made that computes something else.
"""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from transformers.utils import logging

from export.checks.traced_decoding import check_traced
from export.errors import ExportError
from export.graphs.traced.decoder import trace_traced
from models.checkpoints.traced_types import causal_classes
from models.errors import reason
from tests.traced.networks import tiny_decoder

HEADER = (
    "| model_type | outcome | logits differ by | other tokens | neighbours change |\n"
    "|---|---|---|---|---|"
)
MAX_SECONDS = 240  # of one type
WRONG = "differs from transformers"


def main(
    types: Annotated[list[str] | None, typer.Argument(help="Values of model_type.")] = None,
    output: Annotated[Path | None, typer.Option(help="File for the table.")] = None,
) -> None:
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    signal.signal(signal.SIGALRM, _too_late)
    lines = [HEADER]
    for model_type in types or causal_classes():
        lines.append(line_of(model_type))
        typer.echo(lines[-1])
    if output is not None:
        output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(any(WRONG in line for line in lines))


def line_of(model_type: str) -> str:
    """A row of the table: the type is taken, or refused with the reason."""
    signal.alarm(MAX_SECONDS)
    try:
        decoder = tiny_decoder(model_type)
        parity = check_traced(decoder, trace_traced(decoder))
    except ExportError as error:
        return f"| `{model_type}` | refused: {_short(str(error))} | | | |"
    except Exception as error:  # of a configuration that sizes do not fit
        what = f"{type(error).__name__}: {_short(reason(error))}"
        return f"| `{model_type}` | not tried, its configuration: {what} | | | |"
    finally:
        signal.alarm(0)
    numbers = f"{parity.max_abs_error:.0e} | {parity.changed_tokens:.0%}"
    return f"| `{model_type}` | taken | {numbers} | {parity.max_neighbour_effect:.0e} |"


def _short(text: str) -> str:
    return " ".join(text.split())[:160].replace("|", "/")


def _too_late(*_: object) -> None:
    raise TimeoutError(f"more than {MAX_SECONDS} s")


if __name__ == "__main__":
    typer.run(main)
