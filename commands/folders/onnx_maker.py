"""A model of a folder's ready-made graph: its ends edited, compared with itself, and written.

Imports no PyTorch. A graph of a decoder is made by `onnx_decoders.py`.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx

from commands.folders.cache import MODEL
from commands.folders.configuration import without_name
from commands.folders.graphs import OpenedGraph
from commands.folders.onnx_certificate import with_certificate
from commands.folders.onnx_decoders import is_decoder, make_decoder
from commands.folders.onnx_reading import Reading, read, rows_of
from export.adopted.comparison import GraphComparison, compare, longest_run
from export.adopted.inputs import given_by_the_server, has_one_row, originals
from export.adopted.tasks import adopt
from export.errors import ExportError
from export.graphs.files import copy_of
from export.settings import ExportSettings, versions
from export.writer import ExportedModel, write_model
from models.checkpoints.graph_files import GraphWish
from models.checkpoints.plan import recognise
from models.recipes.import_settings import ImportSettings
from service.batching.collate import mask_of, pad_right
from service.contract.embedder_use import EmbedderUse
from service.contract.image_input import ImageInput, Resampling
from service.contract.manifest import Manifest, Precision, ScoreFunction, TaskName
from service.contract.tensors import Arrays

OnStep = Callable[[str], None]
ORIGINAL, EDITED = "original.onnx", "model.onnx"
UNIT = 1e-3  # from length 1, of vectors that are of length 1


def make(job: dict[str, Any], repository: Path, on_step: OnStep) -> dict[str, Any]:
    """The facts of the model for people, which is written into the repository."""
    on_step("reading the graph")
    settings = ImportSettings(**job["import"])
    wish = GraphWish(job["variant"], job["precision"], job["device"])
    plan = recognise(Path(job["folder"]), wish)
    plan.check()
    opened, is_linked = OpenedGraph.of(plan), job.get("is_linked", False)
    if is_decoder(plan, opened, settings):
        facts = make_decoder(plan, opened, settings, repository, on_step, is_linked=is_linked)
        vectors = None
    else:
        try:
            reading = read(plan, settings, opened)
            facts = make_encoder(reading, settings, repository, on_step, is_linked=is_linked)
        except ExportError as error:
            raise ExportError(f"{plan.graph} is not served: {error}") from error
        vectors = reading.pooled_vectors
    on_step("comparing with transformers")
    return with_certificate(plan, settings, repository / MODEL, facts, vectors)


def make_encoder(
    reading: Reading,
    settings: ImportSettings,
    repository: Path,
    on_step: OnStep,
    *,
    is_linked: bool = False,
) -> dict[str, Any]:
    """The facts of the model of an encoder, which is written into the repository.

    With `is_linked` it has the folder's own files of weights, and not copies.
    """
    folder = reading.folder
    edited = copy_of(reading.model)
    if folder.image is None:
        first = folder.first_position
        names = given_by_the_server(edited, first)
        before: Callable[[Arrays], Arrays] = partial(originals, reading.model, first_position=first)
        together: Callable[[Sequence[Arrays]], Arrays] | None = partial(
            _batch_of, names=names, pad_token_id=folder.pad_token_id
        )
    else:
        names, before, together = reading.take_pixels(edited), dict, _stacked
    adopted = adopt(edited, reading.purpose)
    with tempfile.TemporaryDirectory(dir=repository, prefix=".") as scratch:
        place = Path(scratch)
        data = reading.opened.copy_data(place, is_linked=is_linked)
        onnx.save(reading.model, place / ORIGINAL)
        onnx.save(edited, place / EDITED)
        if not folder.is_length_stated:
            most = longest_run(place / EDITED, names, folder.max_tokens)
            reading = replace(reading, folder=replace(folder, max_tokens=most))
        rows = [{name: row[name] for name in names} for row in rows_of(reading)]
        on_step("comparing the graph with itself as it was")
        comparison = compare(
            place / ORIGINAL,
            place / EDITED,
            adopted,
            rows,
            before,
            None if has_one_row(reading.model) else together,
            is_half=reading.precision == "fp16",
        )
        (place / ORIGINAL).unlink()
        (place / EDITED).unlink()
        manifest = _manifest(reading, comparison, settings)
        exported = ExportedModel(edited, folder.tokenizer, manifest, data_files=tuple(data))
        max_rows = 1 if comparison.runs_alone else ExportSettings(MODEL).max_batch_size
        write_model(exported, repository, MODEL, None, max_rows)
    without_name(repository / MODEL)
    return {
        "task": manifest.task,
        "precision": manifest.precision,
        "max_tokens": manifest.max_tokens,
        "labels": list(manifest.labels),
        "pooling": manifest.pooling,
        "has_chat_template": False,
        "num_weights": 0,
        "parity": {},
        "certificate": str(comparison),
        "graph": reading.plan.graph,
    }


def _manifest(reading: Reading, comparison: GraphComparison, settings: ImportSettings) -> Manifest:
    folder = reading.folder
    is_embedder = folder.task == "embedding"
    if folder.labels and comparison.size != len(folder.labels):
        raise ExportError(
            f"the graph gives {comparison.size} logits, and config.json has {len(folder.labels)} "
            "labels"
        )
    use = None
    if is_embedder and folder.embedder is not None:
        within = folder.embedder.within(comparison.size)
        is_unit = all(abs(length - 1) < UNIT for length in comparison.lengths)
        use = EmbedderUse(**within.to_dict(), is_normalized=is_unit)
    return Manifest(
        task=cast("TaskName", folder.task),
        precision=cast("Precision", reading.precision),
        max_tokens=folder.max_tokens,
        pad_token_id=folder.pad_token_id,
        labels=folder.labels,
        score_function=cast("ScoreFunction", folder.score_function),
        embedding_size=comparison.size if is_embedder else 0,
        mask_token_id=folder.mask_token_id,
        pooling=reading.pooling_description,
        embedder=use,
        image=_image_of(reading),
        origin=settings.origin or reading.plan.name,
        certificate=comparison.to_dict(),
        versions=versions(),
        **reading.examples,
    )


def _image_of(reading: Reading) -> ImageInput | None:
    image = reading.folder.image
    if image is None:
        return None
    return ImageInput(
        image.height,
        image.width,
        reading.folder.num_channels,
        image.mean,
        image.std,
        cast("Resampling", image.resample),
        image.resize,
    )


def _batch_of(rows: Sequence[Arrays], names: Sequence[str], pad_token_id: int) -> Arrays:
    """Rows [1, S] as a batch, padded on the right."""
    batch = {
        name: pad_right([row[name][0] for row in rows], pad_token_id if name == "input_ids" else 0)
        for name in names
    }
    if "attention_mask" in batch:
        batch["attention_mask"] = mask_of([row["input_ids"].shape[1] for row in rows])
    return batch


def _stacked(rows: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
