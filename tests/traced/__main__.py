"""Trace and compare networks of transformers of every model_type of texts, as a table.

    python -m tests.traced                        every type that writes; half an hour on two cores
    python -m tests.traced --readers              every type that reads: encoders
    python -m tests.traced glm4 gpt_oss           these types
    python -m tests.traced --served               folders of a few, by the server
    python -m tests.traced --output rows.md       put each row into a file, and go on where it ends

Networks are small and random. A type is taken, with the largest difference of its logits from
transformers' and the share of 64 greedy tokens that are others, alone, in company and in chunks; or
it is refused with the reason. Of encoders the body and each head that the type has are compared,
rows alone and together. Ends with 1 where a graph was made that computes something else.
"""

import signal
import sys
import tempfile
from collections.abc import Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from transformers.utils import logging

from export.checks.traced_decoding import check_traced
from export.checks.traced_reading import check_reader
from export.errors import ExportError
from export.graphs.traced.decoder import trace_traced
from export.graphs.traced.rows import trace_reader
from models.checkpoints.traced_types import MASKS, causal_classes, classes_of, types_of_texts
from models.errors import CheckpointError, reason
from models.networks.reader_makers import FACTORIES
from models.networks.traced_readers import (
    TracedAnswerer,
    TracedClassifier,
    TracedEmbedder,
    TracedMaskedWords,
    TracedReader,
    TracedTokenClassifier,
)
from tests.traced.networks import tiny_decoder, tiny_reader
from tests.traced.served import compared

HEADER = (
    "| model_type | outcome | logits differ by | other tokens | neighbours change |\n"
    "|---|---|---|---|---|"
)
READERS_HEADER = (
    "| model_type | outcome | tokens are | outputs differ by | neighbours change |\n"
    "|---|---|---|---|---|"
)
HEADS: dict[str, type[TracedReader]] = {
    "body": TracedEmbedder,
    "classes": TracedClassifier,
    "tokens": TracedTokenClassifier,
    "spans": TracedAnswerer,
    "words": TracedMaskedWords,
}
LIBRARIES = ("transformers", "torch", "onnxruntime")
MAX_SECONDS = 240  # of the processor, of one type
WRONG = "differs from transformers"


def main(
    types: Annotated[list[str] | None, typer.Argument(help="Values of model_type.")] = None,
    readers: Annotated[bool, typer.Option("--readers", help="Encoders, with their heads.")] = False,
    served: Annotated[bool, typer.Option("--served", help="Ask a server of folders.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="File for the table; types that it has are not run again.")
    ] = None,
) -> None:
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if served:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = compared(Path(folder), types or (), typer.echo)
        sys.exit(any(outcome != "equal" for outcome in outcomes.values()))
    signal.signal(signal.SIGVTALRM, _too_late)
    rows = rows_in(output) if output is not None and output.exists() else {}
    for model_type in types or (encoder_types() if readers else causal_classes()):
        if model_type in rows and not types:
            continue
        rows[model_type] = line_of_reader(model_type) if readers else line_of(model_type)
        typer.echo(rows[model_type])
        if output is not None:
            output.write_text(table_of(rows, READERS_HEADER if readers else HEADER), "utf-8")
    sys.exit(any(WRONG in line for line in rows.values()))


def rows_in(path: Path) -> dict[str, str]:
    """Rows of a table by their model_type."""
    lines = path.read_text("utf-8").splitlines()
    return {line.split("`")[1]: line for line in lines if line.startswith("| `")}


def table_of(rows: Mapping[str, str], header: str) -> str:
    """The table with what it was made with, and how many types are taken."""
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    num_taken = sum("| taken" in line for line in rows.values())
    told = f"On {date.today()} with {versions}, {num_taken} of {len(rows)} types are taken:"
    return "\n".join([told, "", header, *(rows[name] for name in sorted(rows))]) + "\n"


def line_of(model_type: str) -> str:
    """A row of the table: the type is taken, or refused with the reason."""
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
    try:
        decoder = tiny_decoder(model_type)
        parity = check_traced(decoder, trace_traced(decoder))
    except ExportError as error:
        return f"| `{model_type}` | refused: {_short(str(error))} | | | |"
    except Exception as error:  # of a configuration that sizes do not fit
        what = f"{type(error).__name__}: {_short(reason(error))}"
        return f"| `{model_type}` | not tried, its configuration: {what} | | | |"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    numbers = f"{parity.max_abs_error:.0e} | {parity.changed_tokens:.0%}"
    return f"| `{model_type}` | taken | {numbers} | {parity.max_neighbour_effect:.0e} |"


def encoder_types() -> list[str]:
    """Types that have a head for masks, or that read texts and do not write them."""
    masks, writing = classes_of(MASKS), causal_classes()
    return [each for each in types_of_texts() if each in masks or each not in writing]


def line_of_reader(model_type: str) -> str:
    """A row of the table: the heads of a type that are taken, or the first reason against one."""
    taken: list[str] = []
    largest, neighbour = 0.0, 0.0
    for title, kind in HEADS.items():
        if model_type not in classes_of(FACTORIES[kind]):
            continue
        signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
        try:
            reader = tiny_reader(model_type, kind)
            (parity,) = check_reader(reader, trace_reader(reader)).values()
        except (ExportError, CheckpointError) as error:
            return f"| `{model_type}` | refused: {title}: {_short(str(error))} | | | |"
        except Exception as error:  # of a configuration that sizes do not fit
            what = f"{type(error).__name__}: {_short(reason(error))}"
            return f"| `{model_type}` | not tried, {title}: {what} | | | |"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        taken.append(title)
        largest = max(largest, parity.max_abs_error)
        neighbour = max(neighbour, parity.max_neighbour_effect)
    layout = "packed" if reader.takes_positions else "padded"
    numbers = f"{layout} | {largest:.0e} | {neighbour:.0e}"
    return f"| `{model_type}` | taken: {', '.join(taken)} | {numbers} |"


def _short(text: str) -> str:
    return " ".join(text.split())[:160].replace("|", "/")


def _too_late(*_: object) -> None:
    raise TimeoutError(f"more than {MAX_SECONDS} s")


if __name__ == "__main__":
    typer.run(main)
