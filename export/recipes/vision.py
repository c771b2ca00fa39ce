"""Export an image classifier: trace, compare with PyTorch, write. Each step may refuse.

    pixel_values  [B, C, H, W]  float32, normalised as the manifest says
    logits        [B, labels]   float32

All images have as many patches, so attention needs no mask and nothing is packed; it is one node
per layer all the same.
"""

import numpy as np
import onnx
import torch

from export.checks.parity import NUM_ROWS, GraphRunner, Parity, compare
from export.errors import ExportError
from export.graphs.graph import fused_ops
from export.graphs.vision import INPUT, OPERATOR, _pixels, trace_vision
from export.settings import (
    MAX_ABS_ERROR,
    ExportSettings,
    HeldOut,
    OnStep,
    check_fp32,
    versions,
)
from export.writer import ExportedModel
from models.checkpoints.checkpoint import Checkpoint
from models.networks.vit import VisionTransformer
from service.contract.manifest import ImageInput, Manifest


def export_vision(
    checkpoint: Checkpoint, settings: ExportSettings, _: HeldOut, on_step: OnStep
) -> ExportedModel:
    """The graph of an image classifier, and its manifest."""
    network = checkpoint.model
    assert isinstance(network, VisionTransformer), "others have their own recipe"
    check_fp32(settings, "an image classifier's")
    if settings.attention not in ("auto", OPERATOR):
        raise ExportError(f"attention is {settings.attention}, an image classifier's is {OPERATOR}")
    on_step("tracing the graph")
    graph = trace_vision(network)
    on_step("comparing with PyTorch")
    parity = check_vision_parity(network, graph)
    config = network.config
    manifest = Manifest(
        task="image-classification",
        precision="fp32",
        max_tokens=config.max_positions,
        pad_token_id=0,
        labels=checkpoint.labels,
        image=ImageInput(config.height, config.width, config.channels, config.mean, config.std),
        example="",
        origin=checkpoint.origin,
        fused=fused_ops(graph),
        parity=parity.to_dict(),
        versions=versions(),
    )
    return ExportedModel(graph, None, manifest)


def check_vision_parity(network: VisionTransformer, model: onnx.ModelProto) -> Parity:
    """Compare on images of noise, or raise `ExportError` where the graph is further off."""
    pixels, run = _pixels(network.config, NUM_ROWS), GraphRunner(model)
    with torch.inference_mode():
        by_network = network(torch.from_numpy(pixels)).numpy()
    alone = np.concatenate([run({INPUT: image[None]}) for image in pixels])
    return compare(run({INPUT: pixels}), by_network, alone, MAX_ABS_ERROR["fp32"])
