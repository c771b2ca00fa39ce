"""Export an image classifier: trace, compare with PyTorch, write. Each step may refuse.

    pixel_values  [B, C, H, W]  float32, normalised as the manifest says
    logits        [B, labels]   float32

All images have as many patches, so attention needs no mask and nothing is packed; it is one node
per layer all the same.
"""

from typing import Any, cast

import numpy as np
import onnx
import torch

from export.checks.parity import NUM_ROWS, GraphRunner, Parity, compare
from export.checks.provider_support import device_of
from export.errors import ExportError
from export.graphs.graph import fused_ops
from export.graphs.vision import INPUT, OPERATOR, _pixels, trace_vision
from export.graphs.widened import widened
from export.settings import (
    MAX_ABS_ERROR,
    ExportSettings,
    GraphKind,
    HeldOut,
    OnStep,
    check_float,
    versions,
)
from export.writer import Built, ExportedModel, build_graphs
from models.checkpoints.checkpoint import Checkpoint
from models.networks.vit import VisionTransformer, ViTConfig
from service.contract.image_input import ImageInput, Resampling
from service.contract.manifest import (
    MAX_EXAMPLE_IMAGE_BYTES,
    Manifest,
    Precision,
    Variant,
)
from service.errors import InvalidArgument
from service.runtime.images import ImageLimits, decode_images

MAX_EXAMPLE_PIXELS = 2**20  # of a file of 16 KiB


def export_vision(
    checkpoint: Checkpoint, settings: ExportSettings, _: HeldOut, on_step: OnStep
) -> ExportedModel:
    """The graph of an image classifier, and its manifest."""
    network = checkpoint.model
    assert isinstance(network, VisionTransformer), "others have their own recipe"
    check_float(settings, "an image classifier's")
    kinds = settings.graphs(("fp32",))
    if settings.attention not in ("auto", OPERATOR):
        raise ExportError(f"attention is {settings.attention}, an image classifier's is {OPERATOR}")
    graphs = build_graphs(kinds, lambda kind: _build(network, kind, settings, on_step), _any_cost)
    manifest = Manifest(
        task="image-classification",
        **image_fields(checkpoint, settings),
        **graphs.manifest_fields(),
    )
    return ExportedModel(graphs.main.graph, None, manifest, graphs.others)


def image_fields(checkpoint: Checkpoint, settings: ExportSettings) -> dict[str, Any]:
    """The fields of the manifest that every export of an image classifier has.

    Raises `ExportError` for an example that is no image.
    """
    config = checkpoint.config
    assert isinstance(config, ViTConfig), "the caller has checked the network"
    image = ImageInput(
        height=config.height,
        width=config.width,
        channels=config.channels,
        mean=config.mean,
        std=config.std,
        resample=cast("Resampling", config.resample),
        resize=config.resize,
    )
    files = [example.image_file for example in settings.examples]
    try:
        decode_images(files, image, ImageLimits(MAX_EXAMPLE_IMAGE_BYTES, MAX_EXAMPLE_PIXELS))
    except InvalidArgument as error:
        raise ExportError(f"examples: {error}") from error
    return {
        "max_tokens": config.max_positions,
        "pad_token_id": 0,
        "labels": checkpoint.labels,
        "image": image,
        "example": "",  # a text
        "examples": settings.examples,
        "origin": checkpoint.origin,
        "versions": versions(),
    }


def _any_cost(_: Variant) -> None:
    """Every precision is exact, or requested by the target."""


def _build(
    network: VisionTransformer, kind: GraphKind, settings: ExportSettings, on_step: OnStep
) -> Built:
    """A graph in one precision."""
    precision = kind.precision
    on_step(f"{precision}: tracing the graph")
    graph = trace_vision(network, precision)
    on_step(f"{precision}: comparing with PyTorch")
    checked = widened(graph) if precision == "bf16" else graph
    parity = check_vision_parity(network, checked, precision)
    device = device_of(graph, kind, settings)
    return Built(graph, Variant(precision, fused_ops(graph), parity.to_dict(), device=device))


def check_vision_parity(
    network: VisionTransformer, model: onnx.ModelProto, precision: Precision = "fp32"
) -> Parity:
    """Compare on images of noise, or raise `ExportError` where the graph is further off."""
    pixels, run = _pixels(network.config, NUM_ROWS), GraphRunner(model)
    with torch.inference_mode():
        by_network = network(torch.from_numpy(pixels)).numpy()
    alone = np.concatenate([run({INPUT: image[None]}) for image in pixels])
    return compare(run({INPUT: pixels}), by_network, alone, MAX_ABS_ERROR[precision])
