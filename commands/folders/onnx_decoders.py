"""A model of a folder's ready-made decoder: over slots, compared with itself, and written.

Imports no PyTorch.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from commands.folders.cache import MODEL
from commands.folders.configuration import without_name
from commands.folders.details import Details
from commands.folders.graphs import OpenedGraph
from export.adopted.decoders import over_slots
from export.adopted.decoders_building import AdoptedDecoder, Sizes, build_decoder
from export.adopted.decoders_ends import Ends, Names, ends_of, take_branch_with_past
from export.errors import ExportError
from export.general_examples import examples_for
from export.settings import ExportSettings, versions
from export.writer import ExportedModel, write_model
from models.checkpoints.folder_plan import Plan
from models.checkpoints.onnx_folders.decoders import (
    GENAI_CONFIG,
    DecoderFolder,
    read_decoder_folder,
)
from models.checkpoints.ways_out import AS_TENSORS
from models.recipes.import_settings import ImportSettings
from service.contract.manifest import Manifest, TaskName

TASK: TaskName = "text-generation"
CACHES = ("past_key_values.", "past.")  # beginnings of names of a decoder's inputs


def is_decoder(plan: Plan, opened: OpenedGraph, settings: ImportSettings) -> bool:
    """Whether a graph is to write texts: by its inputs, or by the files beside it."""
    if any(info.name.startswith(CACHES) for info in opened.model.graph.input):
        return True
    is_stated = plan.task == TASK or (plan.folder / GENAI_CONFIG).is_file()
    return settings.task == TASK or (settings.task == "auto" and is_stated)


def make_decoder(
    plan: Plan,
    opened: OpenedGraph,
    settings: ImportSettings,
    repository: Path,
    on_step: Callable[[str], None],
    *,
    is_linked: bool = False,
) -> dict[str, Any]:
    """The facts of the model for people, as `make_encoder` has them."""
    folder = read_decoder_folder(plan.folder, settings.context)
    with tempfile.TemporaryDirectory(dir=repository, prefix=".") as scratch:
        data = opened.copy_data(Path(scratch), is_linked=is_linked)
        source, names = plan.folder / plan.graph, Names.of(folder.names)
        try:
            decoder = build_decoder(
                source, opened.model, Path(scratch), _sizes_of(folder), names, on_step
            )
        except ExportError as error:
            raise ExportError(
                f"{plan.graph} is not served as a decoder: {error}; {AS_TENSORS}"
            ) from error
        manifest = _manifest(plan, folder, decoder, settings)
        graph = onnx.load(decoder.path, load_external_data=False)
        exported = ExportedModel(
            graph, folder.tokenizer, manifest, chat=folder.chat, data_files=tuple(data)
        )
        write_model(exported, repository, MODEL, None, ExportSettings(MODEL).max_batch_size)
    without_name(repository / MODEL)
    return {
        "task": manifest.task,
        "precision": manifest.precision,
        "max_tokens": manifest.max_tokens,
        "labels": [],
        "pooling": "",
        "has_chat_template": bool(folder.chat),
        "num_weights": 0,
        "parity": manifest.parity,
        "certificate": decoder.certificate,
        "graph": plan.graph,
    }


def look_at_decoder(plan: Plan, opened: OpenedGraph, settings: ImportSettings) -> Details:
    """The details of a decoder's graph, which is not run. Raises `ExportError`, `ModelError`."""
    folder = read_decoder_folder(plan.folder, settings.context)
    over_slots(opened.model, _ends_of(opened, folder))
    return Details(TASK, max_tokens=folder.max_tokens, has_chat_template=bool(folder.chat))


def _ends_of(opened: OpenedGraph, folder: DecoderFolder) -> Ends:
    take_branch_with_past(opened.model)
    return ends_of(
        opened.model,
        Names.of(folder.names),
        head_size=folder.head_size,
        vocab_size=folder.vocab_size,
    )


def _sizes_of(folder: DecoderFolder) -> Sizes:
    return Sizes(folder.max_tokens, folder.head_size, folder.vocab_size, folder.window)


def _manifest(
    plan: Plan, folder: DecoderFolder, decoder: AdoptedDecoder, settings: ImportSettings
) -> Manifest:
    examples = examples_for(TASK)
    found = decoder.differences
    return Manifest(
        task=TASK,
        precision=decoder.precision,
        max_tokens=folder.max_tokens,
        pad_token_id=folder.pad_token_id,
        eos_token_ids=folder.eos_token_ids,
        sampling=dict(folder.sampling),
        example=examples[0].text,
        examples=examples,
        origin=settings.origin or plan.name,
        certificate={"text": decoder.certificate, **found.to_dict()},
        parity={"max_abs_error": found.of_rows},
        device="cpu",
        versions=versions(),
    )
