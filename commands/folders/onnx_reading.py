"""A folder of graphs, read: the graph's own facts with those of the files beside it.

Imports no PyTorch, and runs nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto

from commands.folders.details import Details
from commands.folders.graphs import OpenedGraph
from commands.folders.onnx_decoders import is_decoder, look_at_decoder
from commands.remarks import showing_remarks
from export.adopted.editing import inputs_of
from export.adopted.inputs import dims_of, given_by_the_server
from export.adopted.outputs import READY_VECTORS, SPANS, STATES, outputs_of
from export.adopted.rounding import SHARED_SCALE, rounded_precision
from export.adopted.tasks import ADOPTIONS, Purpose, adopt, num_outputs
from export.adopted.vectors import VectorMap, VectorUse
from export.certificates.probes import COMPARED
from export.errors import ExportError
from export.general_examples import examples_for
from export.graphs.files import copy_of
from models.checkpoints.embedder_files import DenseStep, NormStep
from models.checkpoints.folder_plan import Plan
from models.checkpoints.onnx_folders.maps import Arrays as MapArrays
from models.checkpoints.onnx_folders.maps import read_maps
from models.checkpoints.onnx_folders.reading import OnnxFolder, Overrides, read_onnx_folder
from models.errors import ModelError, SettingError
from models.recipes.import_settings import ONE_OUTPUT_TASKS, ImportSettings

PIXELS = "pixel_values"
MAX_TOKENS = 64  # of a row that is compared
# Fields of settings that decide how weights become a graph.
OF_WEIGHTS = ("layers", "context", "yes_no", "pair_template", "layer_norm")
OF_VECTORS = ("pooling", "normalize", "dimensions")


@dataclass(frozen=True, slots=True)
class Reading:
    """A graph without its external data, and what is known of it."""

    plan: Plan
    opened: OpenedGraph
    folder: OnnxFolder
    purpose: Purpose
    precision: str

    @property
    def model(self) -> ModelProto:
        """The graph, without its external data."""
        return self.opened.model

    @property
    def own_vectors(self) -> str:
        """The output with ready vectors that is taken; empty where hidden states are pooled."""
        ready = [name for name in READY_VECTORS if name in outputs_of(self.model)]
        is_taken = self.folder.task == "embedding" and ready and self.purpose.has_own_vectors
        return ready[0] if is_taken else ""

    @property
    def pooling_description(self) -> str:
        """A description of how vectors are made, for people."""
        if self.own_vectors:
            return f"the graph's own {self.own_vectors}"
        return self.folder.pooling_description

    @property
    def pooled_vectors(self) -> VectorUse | None:
        """The way from hidden states to vectors, where the graph has it or the files state it."""
        is_known = not self.own_vectors or self.folder.is_pooling_stated
        return self.purpose.vectors if is_known else None

    @property
    def examples(self) -> dict[str, Any]:
        """The manifest's entries of examples."""
        folder = self.folder
        if folder.tokenizer is None:
            return {"example": "", "examples": ()}
        mask = folder.tokenizer.id_to_token(folder.mask_token_id) if folder.mask_token_id else None
        examples = examples_for(folder.task, mask)
        return {"example": examples[0].text, "examples": examples}

    def take_pixels(self, model: ModelProto) -> list[str]:
        """The input of a graph of images, made as wide and high as its folder prepares them."""
        image = self.folder.image
        assert image is not None, "a graph of images has a preparation"
        inputs = inputs_of(model)
        sizes = (self.folder.num_channels, image.height, image.width)
        stated = [tuple(dims_of(info)) for info in inputs]
        if [info.name for info in inputs] != [PIXELS] or not _fits(stated[0], sizes):
            raise ExportError(
                f"the graph takes {[info.name for info in inputs]} of {stated}, and the server "
                f"gives images as {PIXELS} [images, {', '.join(map(str, sizes))}]"
            )
        shape = inputs[0].type.tensor_type.shape
        for dim, size in zip(shape.dim[1:], sizes, strict=True):
            dim.dim_value = size
        return [PIXELS]


def read(plan: Plan, settings: ImportSettings, opened: OpenedGraph) -> Reading:
    """The reading of a plan's graph. Raises `ExportError`, `CheckpointError`, `SettingError`."""
    model = opened.model
    task = _task(plan, model, settings)
    _check(settings, task)
    overrides = Overrides(
        settings.task if settings.task in ONE_OUTPUT_TASKS else None,
        settings.pooling,
        settings.normalize,
        settings.dimensions,
    )
    folder = read_onnx_folder(plan, task, num_outputs(model, task), overrides)
    vectors = None
    if task == "embedding":
        maps = [_map_of(*each) for each in read_maps(folder.maps)]
        vectors = VectorUse(folder.pooling, maps, folder.normalize)
    purpose = Purpose(
        folder.task,
        len(folder.labels) or int(folder.task == "pair-scoring"),
        folder.mask_token_id,
        vectors,
        has_own_vectors=settings.pooling is None,
    )
    return Reading(plan, opened, folder, purpose, _precision(plan, model))


def look_at_graph(plan: Plan, settings: ImportSettings) -> Details:
    """The details of a graph, which is not run; its weights may be in files that are not read."""
    remarks: list[str] = []
    with showing_remarks(remarks.append):
        try:
            opened = OpenedGraph.of(plan)
            if is_decoder(plan, opened, settings):
                return look_at_decoder(plan, opened, settings)
            reading = read(plan, settings, opened)
            if reading.folder.task in ADOPTIONS:
                edited = copy_of(reading.model)
                if reading.folder.image is None:
                    given_by_the_server(edited, reading.folder.first_position)
                else:
                    reading.take_pixels(edited)
                adopt(edited, reading.purpose)
        except (ExportError, ModelError) as error:
            return Details(remarks=tuple(remarks), refusal=str(error))
    folder = reading.folder
    if any(node.op_type in SHARED_SCALE for node in reading.model.graph.node):
        remarks.append(
            "its activations are scaled by all texts of a run, so each text has a run of its own"
        )
    return Details(
        folder.task,
        "",
        folder.labels,
        folder.max_tokens,
        reading.pooling_description,
        remarks=tuple(remarks),
    )


def rows_of(reading: Reading) -> Iterator[dict[str, np.ndarray]]:
    """Rows to compare graphs on: texts, pairs or images as the task has them, [1, ...] each."""
    folder, task = reading.folder, reading.folder.task
    if folder.image is not None:
        random = np.random.default_rng(1)
        shape = (1, folder.num_channels, folder.image.height, folder.image.width)
        for _ in COMPARED:
            yield {PIXELS: random.standard_normal(shape, np.float32)}
        return
    assert folder.tokenizer is not None, "a task of texts has one"
    most = min(MAX_TOKENS, folder.max_tokens)
    are_pairs = task in ("pair-scoring", "question-answering")
    for number, text in enumerate(COMPARED):
        encoding = folder.tokenizer.encode(text, COMPARED[number - 1] if are_pairs else None)
        ids = np.array([encoding.ids[:most] or [folder.pad_token_id]], np.int64)
        if task == "fill-mask":
            ids[0, ids.shape[1] // 2] = folder.mask_token_id
        types = np.array([encoding.type_ids[:most] or [0]], np.int64)
        yield {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}


def _task(plan: Plan, model: ModelProto, settings: ImportSettings) -> str:
    """The task by the settings, else by the class in config.json, else by the graph's ends."""
    inputs = {info.name for info in model.graph.input}
    if settings.task != "auto":
        return settings.task
    if plan.architecture or plan.task != "embedding":
        return plan.task
    there = outputs_of(model)
    if any(name in there for name in (*READY_VECTORS, *STATES)):
        return "embedding"
    if set(SPANS) <= set(there):
        return "question-answering"
    if "logits" in there and PIXELS in inputs:
        return "image-classification"
    if "logits" in there and len(there["logits"]) == 2:
        return "text-classification"
    raise ExportError(
        f"no config.json says what the graph is for, and its outputs, {', '.join(there)}, do not "
        "either: name it by --task"
    )


def _check(settings: ImportSettings, task: str) -> None:
    """Raise `SettingError` for a setting of weights, or of another task."""
    fields = OF_WEIGHTS if task == "embedding" else (*OF_WEIGHTS, *OF_VECTORS)
    for field in fields:
        if (value := getattr(settings, field)) is not None:
            kind = "weights, and this is a graph in ONNX" if field in OF_WEIGHTS else "embedders"
            raise SettingError(field, value, f"left out: it is for {kind}")


def _map_of(step: DenseStep | NormStep, arrays: MapArrays) -> VectorMap:
    if isinstance(step, NormStep):
        return VectorMap(scale=arrays["norm.weight"], bias=arrays["norm.bias"])
    return VectorMap(
        step.activation,
        arrays["linear.weight"],
        arrays.get("linear.bias"),
        arrays.get("residual.weight"),
        step.has_residual,
    )


def _precision(plan: Plan, model: ModelProto) -> str:
    """The precision that a graph computes in, by its nodes and weights."""
    rounded = rounded_precision(model)
    if rounded is not None:
        return rounded
    if plan.precision == "int8":
        return "int8-weights"
    kinds = [tensor.data_type for tensor in model.graph.initializer if len(tensor.dims) > 1]
    halves = sum(kind == TensorProto.FLOAT16 for kind in kinds)
    return "fp16" if halves * 2 > len(kinds) else "fp32"


def _fits(dims: tuple[int | None, ...], sizes: tuple[int, ...]) -> bool:
    return len(dims) == 1 + len(sizes) and all(
        dim in (None, size) for dim, size in zip(dims[1:], sizes, strict=True)
    )
