"""The run of `attendant probe`, after its arguments are parsed; imports PyTorch."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from models.checkpoints.checkpoint import load_checkpoint
from models.data.tagged import read_sentences
from models.recipes.probe import Probed, probe
from models.recipes.probe_settings import ProbeSettings


def probe_checkpoint(source: str, train: Path, test: Path, settings: ProbeSettings) -> None:
    """Print precision, recall and F1 of entities for each kind of features."""
    checkpoint = load_checkpoint(source)
    datasets = read_sentences(train), read_sentences(test)
    with Console(stderr=True).status("reading the files") as status:
        probed = probe(checkpoint, *datasets, settings, on_step=status.update)
    Console().print(table_of(probed, f"{source}: entities of {test.name}"))


def table_of(probed: Sequence[Probed], title: str) -> Table:
    """One row per kind of features."""
    table = Table("features", "values", "precision", "recall", "F1", title=title)
    for each in probed:
        found = each.found
        figures = (f"{value:.2%}" for value in (found.precision, found.recall, found.f1))
        table.add_row(each.features.replace("_", " "), str(each.size), *figures)
    shares = ", ".join(f"{weight:.2f}" for weight in probed[-1].weights)
    table.caption = f"weights of the layers in the mix, embeddings first: {shares}"
    return table
