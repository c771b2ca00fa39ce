"""The `attendant export` command. Imports torch only when it runs."""

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commands.flags import completing, shown_as
from export.errors import ExportError
from service.contract.manifest import Manifest

TASKS = ("features", "embedding", "attention")  # beside the checkpoint's own


def export(
    checkpoint: Annotated[
        str,
        typer.Argument(
            envvar="ATTENDANT_EXPORT_CHECKPOINT",
            help="Checkpoint folder, Hugging Face folder, or hub id.",
        ),
    ],
    name: Annotated[
        str,
        typer.Option(envvar="ATTENDANT_EXPORT_NAME", help="Name under which the model is served."),
    ],
    repository: Annotated[
        Path,
        typer.Option(
            envvar="ATTENDANT_MODEL_REPOSITORY",
            help="Model repository. By default the one that `attendant serve` serves.",
        ),
    ] = Path("model_repository"),
    precision: Annotated[
        Literal["auto", "fp32", "fp16", "int8", "int8-weights", "int4-weights"],
        typer.Option(
            envvar="ATTENDANT_EXPORT_PRECISION",
            help="Precision of the graph. With auto, fp32 and the quantized graphs that are faster "
            "on some processors are written, and the server chooses. The others write one graph: "
            "fp32 is exact, int8 is quantized, fp16 is for encoders on CUDA; int8-weights and "
            "int4-weights quantize a decoder's weights in blocks, independently of other rows.",
        ),
    ] = "auto",
    with_fp16: Annotated[
        bool,
        typer.Option(
            envvar="ATTENDANT_EXPORT_WITH_FP16",
            help="With --precision auto, write fp16 too, for servers with a GPU. It is "
            "half as large "
            "as fp32.",
        ),
    ] = False,
    version: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="ATTENDANT_EXPORT_VERSION",
            help="Version to write; by default the next free one.",
        ),
    ] = None,
    max_batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            max=65536,
            envvar="ATTENDANT_EXPORT_MAX_BATCH_SIZE",
            help="Rows per batch of a new model; more than 64 were not faster on any CPU. "
            "An existing "
            "model keeps its configuration.",
        ),
    ] = 64,
    attention: Annotated[
        Literal["auto", "Attention", "MultiHeadAttention"],
        typer.Option(
            envvar="ATTENDANT_EXPORT_ATTENTION",
            help="Fused attention operator: ONNX's Attention or com.microsoft's "
            "MultiHeadAttention; "
            "auto takes the one that is faster for the precision.",
        ),
    ] = "auto",
    labelled_data: Annotated[
        Path | None,
        typer.Option(
            envvar="ATTENDANT_EXPORT_LABELLED_DATA",
            help="TSV, CSV or JSONL file of labelled texts to measure accuracy on.",
        ),
    ] = None,
    max_accuracy_drop: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            envvar="ATTENDANT_EXPORT_MAX_ACCURACY_DROP",
            help="Refuse a precision whose accuracy on the labelled data drops by more than this.",
        ),
    ] = 0.005,
    calibration: Annotated[
        Path | None,
        typer.Option(
            envvar="ATTENDANT_EXPORT_CALIBRATION",
            help="Plain text, one text per line, to calibrate the scales of int8: texts like those "
            "of future requests. By default English texts that come with Attendant and Python.",
        ),
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            envvar="ATTENDANT_EXPORT_HELD_OUT",
            help="Decoders: plain text that was not used in training, to measure perplexity on.",
        ),
    ] = None,
    max_perplexity_rise: Annotated[
        float,
        typer.Option(
            min=0.0,
            envvar="ATTENDANT_EXPORT_MAX_PERPLEXITY_RISE",
            help="Refuse a precision that raises perplexity on the held-out text by more than this "
            "share.",
        ),
    ] = 0.05,
    kv_cache: Annotated[
        Literal["float", "int8"],
        typer.Option(
            envvar="ATTENDANT_EXPORT_KV_CACHE",
            help="Decoders: type of the KV cache of quantized graphs. With int8, a "
            "sequence takes a "
            "quarter of the memory and is generated faster, but the weights are held twice.",
        ),
    ] = "float",
    task: Annotated[
        str | None,
        typer.Option(
            envvar="ATTENDANT_EXPORT_TASK",
            autocompletion=completing(TASKS),
            metavar=shown_as(TASKS),
            help="Task to export the checkpoint for: features, all hidden states of its encoder; "
            "embedding, one vector per text, of an ELMo; attention, its attention weights. By "
            "default the checkpoint's own task.",
            show_default="its own",
        ),
    ] = None,
    example: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_EXPORT_EXAMPLE",
            help="Text to try the model with; by default a general sentence or its beginning.",
        ),
    ] = "",
) -> None:
    """Export a checkpoint to ONNX, check the result, and write it to a model repository."""
    errors = Console(stderr=True)
    try:
        from commands.remarks import showing_remarks
        from export.exporter import HeldOut, export_any
        from export.settings import ExportSettings
        from models.checkpoints.checkpoint import load_checkpoint
        from models.data.datasets import read_dataset
        from models.errors import ModelError
    except ImportError as error:
        errors.print(
            f"attendant export needs PyTorch: pip install 'attendant\\[cpu,train]' ({error})"
        )
        raise typer.Exit(2) from error
    settings = ExportSettings(
        name=name,
        repository=repository,
        precision=precision,
        with_fp16=with_fp16,
        operator=None if attention == "auto" else attention,
        version=version,
        max_batch_size=max_batch_size,
        max_accuracy_drop=max_accuracy_drop,
        max_perplexity_rise=max_perplexity_rise,
        kv_cache=kv_cache,
        example=example,
    )
    with (
        errors.status("reading the checkpoint") as status,
        showing_remarks(lambda remark: errors.print(Text(f"warning: {remark}"), soft_wrap=True)),
    ):
        try:
            loaded = load_checkpoint(checkpoint)
            _check_data(task or loaded.task, labelled_data, held_out)
            measured_on = HeldOut(
                tuple(read_dataset(labelled_data).examples) if labelled_data else (),
                held_out.read_text(encoding="utf-8") if held_out else None,
            )
            if calibration:
                texts = tuple(calibration.read_text(encoding="utf-8").splitlines())
                settings = replace(settings, calibration=texts)
            exported = export_any(loaded, settings, measured_on, on_step=status.update, task=task)
        except (ExportError, ModelError, OSError, UnicodeDecodeError) as error:
            errors.print(Text.assemble(("error: ", "red"), str(error)))
            raise typer.Exit(1) from error
    table = Table(title=str(exported.folder), show_header=False)
    for name, value in exported.measured.items():
        table.add_row(name.replace("_", " "), str(value))
    manifest = exported.manifest
    if manifest is not None:
        _add_rows(table, manifest)
    Console().print(table)
    for left_out, reason in manifest.left_out.items() if manifest else ():
        errors.print(Text(f"{left_out} is left out: {reason}"))


def _add_rows(table: Table, manifest: Manifest) -> None:
    """The counts and measurements, a column per graph."""
    columns = [manifest.computed_in(precision) for precision in manifest.filenames]
    table.add_row("precision", *(column.precision for column in columns))
    measured = [
        column.fused
        | {key.replace("_", " "): value for key, value in column.parity.items()}
        | {f"accuracy, {key}": value for key, value in column.accuracy.items()}
        | {f"perplexity, {key}": value for key, value in column.perplexity.items()}
        for column in columns
    ]
    for key in dict.fromkeys(chain.from_iterable(measured)):
        table.add_row(key, *(str(column.get(key, "")) for column in measured))


def _check_data(task: str, labelled_data: Path | None, held_out: Path | None) -> None:
    """Raise `ExportError` for data that the task has no use for: nothing would be measured."""
    if task != "text-classification" and labelled_data:
        raise ExportError(
            f"labelled data {labelled_data} is for classifiers of texts: a decoder is measured on "
            "plain text, see --held-out"
        )
    if task != "text-generation" and held_out:
        raise ExportError(
            f"held-out text {held_out} is for decoders: a classifier is measured on labelled "
            "texts, see --labelled-data"
        )
