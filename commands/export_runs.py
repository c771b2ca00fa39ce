"""The run of `attendant export`, after its arguments are parsed.

Knows nothing about flags or exit codes (`commands/export.py` does). It imports PyTorch, so the
command line imports it only when it runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from export.errors import ExportError
from export.examples import read_examples, some_of
from export.exporter import Exported, export_any
from export.graphs.files import bytes_on_disk
from export.recipes.image_samples import read_images
from export.settings import ExportSettings, HeldOut
from export.writer import adapted_beside
from models.checkpoints.checkpoint import load_checkpoint
from models.data.datasets import DEFAULT_COLUMNS, Columns, read_dataset
from models.data.datasets import Example as LabelledExample
from models.networks.vit import VisionTransformer
from service.contract.manifest import Example


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Files to measure and to calibrate on."""

    labelled: Path | None = None
    held_out: Path | None = None
    calibration: Path | None = None
    examples: Path | None = None
    columns: Columns = DEFAULT_COLUMNS  # of the labelled data
    shows_labelled: bool = False  # whether some of it becomes the model's examples

    def check(self, task: str) -> None:
        """Raise `ExportError` for data that the task has no use for: nothing would be measured."""
        if task != "text-classification" and self.labelled:
            raise ExportError(
                f"labelled data {self.labelled} is for classifiers of texts: a decoder is measured "
                "on plain text, see --held-out"
            )
        if self.shows_labelled and not self.labelled:
            raise ExportError("--labelled-examples takes examples out of --labelled-data: give it")
        if task != "text-generation" and self.held_out:
            raise ExportError(
                f"held-out text {self.held_out} is for decoders: a classifier is measured on "
                "labelled texts, see --labelled-data"
            )

    def read_held_out(self) -> HeldOut:
        return HeldOut(
            tuple(read_dataset(self.labelled, self.columns).examples) if self.labelled else (),
            _text("--held-out", self.held_out) if self.held_out else None,
        )

    def read_examples(
        self, task: str, labelled: Sequence[LabelledExample], *, has_images: bool
    ) -> tuple[Example, ...]:
        """Examples of the file, or where it was asked for some of the labelled texts."""
        if self.examples is None:
            return some_of(labelled) if self.shows_labelled else ()
        return read_examples(self.examples, task, has_images=has_images)

    def read_calibration(self, *, has_images: bool) -> dict[str, Any]:
        """The setting of what to calibrate on: texts or images."""
        if self.calibration is None:
            return {}
        if has_images:
            return {"calibration_images": read_images(self.calibration)}
        return {"calibration": tuple(_text("--calibration", self.calibration).splitlines())}


def _text(flag: str, path: Path) -> str:
    """The text of the file that a flag names. Raises ExportError."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ExportError(
            f"{flag} {path}: byte {error.start} is no UTF-8 text: {error.reason}"
        ) from error
    except OSError as error:
        raise ExportError(f"{flag} {path} cannot be read: {error.strerror or error}") from error


def export_model(
    source: str, task: str | None, files: DataFiles, settings: ExportSettings, errors: Console
) -> None:
    """Export a checkpoint for a task, or for its own, and print what was measured.

    Raises ExportError, ModelError, OSError and UnicodeDecodeError; then nothing was written.
    """
    with errors.status("reading the checkpoint") as status:
        checkpoint = load_checkpoint(source, leaves_weights=True)
        files.check(task or checkpoint.task)
        held_out = files.read_held_out()
        has_images = isinstance(checkpoint.model, VisionTransformer)
        settings = replace(
            settings,
            **files.read_calibration(has_images=has_images),
            examples=files.read_examples(
                task or checkpoint.task, held_out.labelled, has_images=has_images
            ),
        )
        exported = export_any(checkpoint, settings, held_out, on_step=status.update, task=task)
    Console().print(export_table(exported, settings))
    for precision, reason in exported.manifest.left_out.items():
        errors.print(Text(f"{precision} is left out: {reason}"))


def export_table(exported: Exported, settings: ExportSettings) -> Table:
    """The counts and measurements of an export, a column per graph of the model itself.

    A graph that serves adapters has rows in the column of the graph that it stands beside.
    """
    table = Table(title=str(exported.folder), show_header=False)
    manifest = exported.manifest
    columns = list(manifest.graphs.values())
    table.add_row("precision", *(column.kind for column in columns))
    sizes = [bytes_on_disk(exported.folder / filename) for filename in manifest.graphs]
    table.add_row("MiB", *(f"{size / 2**20:.1f}" for size in sizes))
    measured = [
        column.fused
        | {key.replace("_", " "): value for key, value in column.parity.items()}
        | {f"accuracy, {key}": value for key, value in column.accuracy.items()}
        | {f"perplexity, {key}": value for key, value in column.perplexity.items()}
        for column in columns
    ]
    for key in dict.fromkeys(chain.from_iterable(measured)):
        table.add_row(key, *(str(column.get(key, "")) for column in measured))
    adapted = [adapted_beside(exported.folder / filename) for filename in manifest.graphs]
    if any(adapted):
        table.add_row("graph with adapters", *(path.name if path else "" for path in adapted))
        more = (f"{bytes_on_disk(path) / 2**20:.1f}" if path else "" for path in adapted)
        table.add_row("MiB more for it", *more)
        slots, rank = settings.lora_slots, settings.lora_rank
        products = ", ".join(settings.adapted_products())
        table.caption = (
            f"with adapters: at most {slots} in a step, of rank {rank} at most, for {products}; "
            "add them with attendant import-adapter"
        )
    return table
