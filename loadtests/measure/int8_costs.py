"""The cost of int8 for trained networks: answers, cosines and orders beside PyTorch's float32.

    python -m loadtests.measure.int8_costs build/checkpoints/minilm build/checkpoints/spam
    python -m loadtests.measure.int8_costs --families build/all-MiniLM-L6-v2    # random weights

Each checkpoint is exported in int8 as `attendant export --precision int8` does, with its scales
found on our own texts, and compared on public ones (`loadtests/measure/texts.py`). A network whose
weights are random says little: its errors are those of noise.
"""

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import onnx
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from export.checks.agreement import measure_agreement, sample_texts
from export.checks.parity import GraphRunner
from export.errors import ExportError
from export.exporter import export_any
from export.settings import ExportSettings
from loadtests.measure.families import FAMILIES, write_family
from loadtests.measure.texts import HELP, real_texts
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from service.contract.manifest import Precision

COSINES = "mean_text_cosine", "least_text_cosine"
COUNT = "texts_compared"


def main(
    checkpoints: Annotated[
        list[Path] | None, typer.Argument(help="As `attendant import` wrote them.")
    ] = None,
    families: Annotated[
        Path | None,
        typer.Option(help="A Hugging Face folder, whose tokenizer one network per family gets."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help=HELP)] = None,
    limit: Annotated[int, typer.Option(min=10, help="Texts, drawn at random.")] = 1_000,
) -> None:
    """Print a line for each checkpoint."""
    texts, origin = real_texts(data)
    chosen = random.Random(0).sample(texts, min(limit, len(texts)))
    title = f"int8 beside float32 on {len(chosen)} of {origin}"
    table = Table("checkpoint", "task", "mean cosine", "least cosine", "answers", title=title)
    for name, checkpoint in track(
        _checkpoints(checkpoints or (), families),
        total=len(checkpoints or ()) + 2 * len(FAMILIES) * bool(families),
        console=Console(stderr=True),
    ):
        try:
            figures = costs_of(checkpoint, chosen)
        except ExportError as error:
            table.add_row(name, checkpoint.task, "-", "-", f"refused: {error}")
            continue
        cosines = [f"{figures[key]:.4f}" if key in figures else "-" for key in COSINES]
        answers = [
            f"{key.replace('_', ' ')} {figure:.4g}"
            for key, figure in figures.items()
            if key not in (*COSINES, COUNT)
        ]
        table.add_row(name, checkpoint.task, *cosines, ", ".join(answers))
    Console().print(table)


def _checkpoints(
    folders: Sequence[Path], tokenizer: Path | None
) -> Iterator[tuple[str, Checkpoint]]:
    """Those of the folders, then an embedder and a reranker of each family, by their names."""
    for folder in folders:
        yield folder.name, load_checkpoint(folder)
    if tokenizer is None:
        return
    for family in FAMILIES:
        for is_reranker in (False, True):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name) / family.kind
                write_family(family, folder, tokenizer, is_reranker=is_reranker)
                checkpoint = load_checkpoint(folder)
            yield family.kind, checkpoint


def costs_of(
    checkpoint: Checkpoint, texts: Sequence[str], precision: Precision = "int8"
) -> dict[str, float]:
    """The figures that a manifest has, of these texts; or `ExportError`."""
    network = checkpoint.text_network
    with tempfile.TemporaryDirectory() as folder:
        version, _ = export_any(checkpoint, ExportSettings("model", Path(folder), precision))
        graph = GraphRunner(onnx.load(version / "model.onnx"))
    samples = sample_texts(
        checkpoint.task, checkpoint.tokenizer, texts, checkpoint.max_tokens, network
    )
    return measure_agreement(checkpoint.task, checkpoint.labels, samples, network, graph)


if __name__ == "__main__":
    typer.run(main)
