"""Export one checkpoint: trace, quantise, check, write. Each step may refuse.

Knows nothing of the command line; progress is told to a callback.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx

from export.errors import ExportError
from export.fused_attention import Operator
from export.graph import check_fused, fused_ops, num_layers_used, trace
from export.parity import GraphRunner, check_parity, outputs_of_texts
from export.quantization import quantize_int8
from export.writer import ExportedModel, write_model
from models.checkpoint import Checkpoint
from models.datasets import Example
from models.heads import TextEmbedder
from service.manifest import EXAMPLE, Manifest, Precision

# Largest difference to PyTorch on the outputs that is let through. int8 has none of its
# own: what it costs is measured, and bounded by `max_accuracy_drop` on labelled data.
MAX_ABS_ERROR = {"fp32": 1e-4, "fp16": 5e-2, "int8": float("inf")}
# Which operator measured faster where each precision runs: docs/benchmarks.md.
DEFAULT_OPERATOR: dict[str, Operator] = {
    "fp32": "Attention",
    "fp16": "MultiHeadAttention",
    "int8": "Attention",
}


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """What an export is told, beside the checkpoint."""

    name: str
    repository: Path
    precision: Precision = "fp32"
    operator: Operator | None = None  # None: what measured faster for the precision
    version: int | None = None  # None: the next free one
    max_batch_size: int = 64
    max_accuracy_drop: float = 0.005  # half a point
    max_perplexity_rise: float = 0.05  # by a twentieth
    example: str = ""


def export_checkpoint(
    checkpoint: Checkpoint,
    settings: ExportSettings,
    labelled: Sequence[Example] = (),
    on_step: Callable[[str], None] = lambda _: None,
) -> tuple[Path, Manifest]:
    """Write a version into the repository; returns its folder and manifest.

    Accuracy is measured on `labelled`, where there are any. Raises `ExportError`, and then the
    repository is as it was.
    """
    check_name(settings.name)
    if settings.precision not in MAX_ABS_ERROR:
        raise ExportError(
            f"precision is {settings.precision}, an encoder's is one of {', '.join(MAX_ABS_ERROR)}"
        )
    _check_labels(checkpoint, labelled)
    operator = settings.operator or DEFAULT_OPERATOR[settings.precision]
    network = checkpoint.encoder_model.eval()
    on_step("tracing the graph")
    is_half = settings.precision == "fp16"
    graph = float_graph = trace(network, operator, is_half=is_half)
    if settings.precision == "int8":
        on_step("quantising weights")
        graph = quantize_int8(graph)
        check_fused(graph, operator, num_layers_used(network))
    on_step("comparing with PyTorch")
    limit = MAX_ABS_ERROR[settings.precision]
    parity = check_parity(network, graph, checkpoint.max_tokens, limit)
    accuracy: dict[str, float] = {}
    if labelled:
        on_step(f"measuring accuracy on {len(labelled)} texts")
        if is_half:
            float_graph = trace(network, operator, is_half=False)
        accuracy = _measure_accuracy(checkpoint, graph, float_graph, labelled)
        _check_accuracy(accuracy, settings.max_accuracy_drop)
    manifest = _manifest(checkpoint, settings, graph, parity.to_dict(), accuracy)
    on_step("writing")
    exported = ExportedModel(graph, checkpoint.tokenizer, manifest)
    folder = write_model(
        exported, settings.repository, settings.name, settings.version, settings.max_batch_size
    )
    return folder, manifest


def check_name(name: str) -> None:
    if not name or name.startswith(".") or "/" in name:
        raise ExportError(f"name is '{name}', expected a folder name that does not start with '.'")


def _check_labels(checkpoint: Checkpoint, labelled: Sequence[Example]) -> None:
    unknown = {example.label for example in labelled} - set(checkpoint.labels)
    if unknown:
        raise ExportError(
            f"labelled data has labels {sorted(unknown)}, the model knows {checkpoint.labels}"
        )


def _measure_accuracy(
    checkpoint: Checkpoint,
    graph: onnx.ModelProto,
    float_graph: onnx.ModelProto,
    labelled: Sequence[Example],
) -> dict[str, float]:
    """Share of texts whose best label is the given one, for the graph and its float32 form."""
    wanted = np.array([checkpoint.labels.index(example.label) for example in labelled])

    def accuracy_of(model: onnx.ModelProto) -> float:
        outputs = outputs_of_texts(
            GraphRunner(model),
            checkpoint.tokenizer,
            [example.text for example in labelled],
            checkpoint.max_tokens,
            checkpoint.encoder_model.config.pad_token_id,
        )
        return round(float((np.concatenate(list(outputs)).argmax(axis=1) == wanted).mean()), 5)

    float_accuracy = accuracy_of(float_graph)
    exported = float_accuracy if graph is float_graph else accuracy_of(graph)
    return {"texts": len(labelled), "float": float_accuracy, "exported": exported}


def _check_accuracy(accuracy: dict[str, float], max_drop: float) -> None:
    drop = accuracy["float"] - accuracy["exported"]
    if drop > max_drop:
        raise ExportError(
            f"accuracy drops by {drop:.4f}, from {accuracy['float']} to {accuracy['exported']}; "
            f"the limit is {max_drop}"
        )


def _manifest(
    checkpoint: Checkpoint,
    settings: ExportSettings,
    graph: onnx.ModelProto,
    parity: dict[str, float],
    accuracy: dict[str, float],
) -> Manifest:
    network = checkpoint.encoder_model
    return Manifest(
        task=checkpoint.task,
        precision=settings.precision,
        max_tokens=checkpoint.max_tokens,
        pad_token_id=network.config.pad_token_id,
        labels=checkpoint.labels,
        embedding_size=network.embedding_size if isinstance(network, TextEmbedder) else 0,
        pooling=_describe_pooling(network) if isinstance(network, TextEmbedder) else "",
        origin=checkpoint.origin,
        fused=fused_ops(graph),
        parity=parity,
        accuracy=accuracy,
        versions=versions(),
        example=settings.example or EXAMPLE,
    )


def versions() -> dict[str, str]:
    """Of what an export depends on."""
    return {name: version(name) for name in ("attendant", "onnx", "onnxruntime", "torch")}


def _describe_pooling(network: TextEmbedder) -> str:
    layers = network.layers.replace("_", " ")
    return f"{network.pooling} of {layers}" + (", normalised" if network.normalize else "")
