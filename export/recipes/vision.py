"""Export an image classifier: trace, compare with PyTorch, write. Each step may refuse.

    pixel_values  [B, C, H, W]  float32, normalised as the manifest says
    logits        [B, labels]   float32

Int8 finds its scales on images of the user's and is compared on others of them. All images have as
many patches, so attention needs no mask and nothing is packed; it is one node per layer all the
same.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: N images, C channels, H and W pixels

from functools import cache
from typing import Any, cast

import numpy as np
import onnx
import torch

from export.checks.agreement import LEAST_AGREEMENT
from export.checks.distributions import check_changes, probability_changes
from export.checks.parity import NUM_ROWS, GraphRunner, Parity, compare
from export.checks.provider_support import device_of
from export.errors import ExportError
from export.graphs.graph import check_fused, fused_ops
from export.graphs.vision import INPUT, OPERATOR, _pixels, trace_vision
from export.graphs.widened import widened
from export.precision.static import quantize_static
from export.recipes.image_samples import sample_pixels
from export.recipes.texts import MIN_MEAN_COSINE
from export.settings import (
    AUTO,
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
from service.contract.precision import HALF
from service.errors import InvalidArgument
from service.runtime.images import ImageLimits, decode_images

MAX_EXAMPLE_PIXELS = 2**20  # of a file of 16 KiB


def export_vision(
    checkpoint: Checkpoint, settings: ExportSettings, _: HeldOut, on_step: OnStep
) -> ExportedModel:
    """The graphs of an image classifier, and its manifest; int8 where there are sample images."""
    assert isinstance(checkpoint.model, VisionTransformer), "others have their own recipe"
    if settings.precision != "int8":
        check_float(settings, "an image classifier's")
    elif not settings.calibration_images:
        raise ExportError(
            "precision is int8, for which an image classifier needs images like those to come: "
            "--calibration with a folder of PNG and JPEG files"
        )
    kinds = settings.graphs(AUTO if settings.calibration_images else ("fp32",))
    if settings.attention not in ("auto", OPERATOR):
        raise ExportError(f"attention is {settings.attention}, an image classifier's is {OPERATOR}")
    fields = image_fields(checkpoint, settings)
    classifier = _Classifier(checkpoint.model, fields["image"], settings, on_step)
    graphs = build_graphs(kinds, classifier.build, _check_cost)
    manifest = Manifest(task="image-classification", **fields, **graphs.manifest_fields())
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


class _Classifier:
    """One network in any precision; what several of them need is computed once."""

    def __init__(
        self,
        network: VisionTransformer,
        image_input: ImageInput,
        settings: ExportSettings,
        on_step: OnStep,
    ) -> None:
        self._network = network
        self._settings = settings
        self._on_step = on_step
        self._samples = cache(lambda: sample_pixels(settings.calibration_images, image_input))
        self._trace = cache(lambda precision: trace_vision(network, precision))

    def build(self, kind: GraphKind) -> Built:
        """A graph that computes what the network does, or `ExportError`."""
        precision, network = kind.precision, self._network
        self._on_step(f"{precision}: tracing the graph")
        graph = self._trace(precision if precision in HALF else "fp32")
        pixels = None
        if precision == "int8":
            self._on_step("int8: looking for the scales of activations")
            samples = self._samples()
            graph = quantize_static(graph, ({INPUT: batch} for batch in samples.batches))
            check_fused(graph, OPERATOR, network.config.num_layers)
            pixels = samples.checked_NCHW
        self._on_step(f"{precision}: comparing with PyTorch")
        checked = widened(graph) if precision == "bf16" else graph
        parity = check_vision_parity(network, checked, precision, pixels)
        figures = parity.to_dict()
        if pixels is not None:
            _check_cosine(parity)
            figures |= _agreement(network, graph, pixels)
        device = device_of(graph, kind, self._settings)
        return Built(graph, Variant(precision, fused_ops(graph), figures, device=device))


def check_vision_parity(
    network: VisionTransformer,
    model: onnx.ModelProto,
    precision: Precision = "fp32",
    pixels_NCHW: np.ndarray | None = None,
) -> Parity:
    """Compare on images, or on noise, or raise `ExportError` where the graph is further off."""
    if pixels_NCHW is None:
        pixels_NCHW = _pixels(network.config, NUM_ROWS)
    run = GraphRunner(model)
    alone = np.concatenate([run({INPUT: image_CHW[None]}) for image_CHW in pixels_NCHW])
    by_graph, by_network = run({INPUT: pixels_NCHW}), _logits(network, pixels_NCHW)
    return compare(by_graph, by_network, alone, MAX_ABS_ERROR[precision])


def _check_cosine(parity: Parity) -> None:
    if not parity.mean_cosine >= MIN_MEAN_COSINE:
        raise ExportError(
            f"the mean cosine of int8's outputs with PyTorch's is {parity.mean_cosine:.4f}, the "
            f"limit is {MIN_MEAN_COSINE}: calibrate on images like yours, see --calibration"
        )


def _agreement(
    network: VisionTransformer, model: onnx.ModelProto, pixels_NCHW: np.ndarray
) -> dict[str, float]:
    """The share of images with the same label, of how many images, and the largest changes."""
    by_graph, by_network = GraphRunner(model)({INPUT: pixels_NCHW}), _logits(network, pixels_NCHW)
    same = by_graph.argmax(axis=1) == by_network.argmax(axis=1)
    changes = probability_changes(by_graph, by_network)
    return {"images_compared": len(same), "same_labels": round(float(same.mean()), 5)} | {
        name: round(change, 5) for name, change in changes.items()
    }


def _check_cost(variant: Variant) -> None:
    """Raise `ExportError` for an unrequested int8 that is too inaccurate; others are bounded."""
    share, least = variant.parity.get("same_labels", 1.0), LEAST_AGREEMENT["same_labels"]
    if not share >= least:
        raise ExportError(
            f"same labels as in float32 on {variant.parity['images_compared']} images is {share}, "
            f"the limit is {least}: calibrate on images like yours (--calibration), or ask for it "
            f"by name (--precision {variant.precision})"
        )
    check_changes(variant.precision, variant.parity)


@torch.inference_mode()
def _logits(network: VisionTransformer, pixels_NCHW: np.ndarray) -> np.ndarray:
    logits: np.ndarray = network(torch.from_numpy(pixels_NCHW)).numpy()
    return logits
