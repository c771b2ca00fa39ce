"""Export an image classifier: trace, compare with PyTorch, write. Each step may refuse.

    pixel_values  [B, C, H, W]  float32, normalised as the manifest says
    logits        [B, labels]   float32

All images have as many patches, so attention needs no mask and nothing is packed; it is one node
per layer all the same.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, C channels, H and W pixels, S tokens, D

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.exporter import MAX_ABS_ERROR, ExportSettings, check_fp32, check_name, versions
from export.graph import check_fused, clean, export_program, fused_ops
from export.parity import NUM_ROWS, GraphRunner, Parity, compare
from export.writer import ExportedModel, write_model
from models.attention import MultiHeadAttention
from models.checkpoint import Checkpoint
from models.vision.vit import VisionTransformer, ViTConfig
from service.manifest import ImageInput, Manifest

INPUT, OUTPUT, OPERATOR = "pixel_values", "logits", "Attention"


def export_vision(
    checkpoint: Checkpoint,
    settings: ExportSettings,
    on_step: Callable[[str], None] = lambda _: None,
) -> tuple[Path, Manifest]:
    """Write a version into the repository; returns its folder and manifest.

    Raises `ExportError`, and then the repository is as it was.
    """
    network = checkpoint.model
    assert isinstance(network, VisionTransformer)
    check_name(settings.name)
    check_fp32(settings, "an image classifier's")
    if settings.operator not in (None, OPERATOR):
        raise ExportError(f"attention is {settings.operator}, an image classifier's is {OPERATOR}")
    network.eval()
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
    on_step("writing")
    folder = write_model(
        ExportedModel(graph, None, manifest),
        settings.repository,
        settings.name,
        settings.version,
        settings.max_batch_size,
    )
    return folder, manifest


def trace_vision(network: VisionTransformer) -> onnx.ModelProto:
    """The graph of a network, or `ExportError` unless each layer's attention became one node."""
    fused = copy.deepcopy(network).eval()
    for parent in list(fused.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, MultiHeadAttention):
                setattr(parent, name, _FusedAttention(child))
    rows = torch.export.Dim("batch")
    example = (torch.from_numpy(_pixels(network.config, num_images=2)),)
    program = export_program(_Network(fused), example, (INPUT,), ({0: rows},))
    model = clean(program, (INPUT,), (OUTPUT,))
    check_fused(model, OPERATOR, network.config.num_layers)
    return model


def check_vision_parity(network: VisionTransformer, model: onnx.ModelProto) -> Parity:
    """Compare on images of noise, or raise `ExportError` where the graph is further off."""
    pixels, run = _pixels(network.config, NUM_ROWS), GraphRunner(model)
    with torch.inference_mode():
        wanted = network(torch.from_numpy(pixels)).numpy()
    alone = np.concatenate([run({INPUT: image[None]}) for image in pixels])
    return compare(run({INPUT: pixels}), wanted, alone, MAX_ABS_ERROR["fp32"])


def _pixels(config: ViTConfig, num_images: int) -> np.ndarray:
    shape = (num_images, config.channels, config.height, config.width)
    return np.random.default_rng(0).standard_normal(shape, np.float32)


class _Network(nn.Module):
    """Gives the network's weights the names that they have in a checkpoint."""

    def __init__(self, network: VisionTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.network(pixel_values)
        return logits


class _FusedAttention(nn.Module):
    """Self-attention over rows of one length, as one ONNX operator (version 23)."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, hidden_BSD: Tensor, *_: object) -> Tensor:
        attention = self.attention
        context_BSD = torch.onnx.ops.attention(
            attention.query(hidden_BSD),
            attention.key(hidden_BSD),
            attention.value(hidden_BSD),
            q_num_heads=attention.num_heads,
            kv_num_heads=attention.num_heads,
            scale=attention.head_size**-0.5,
        )[0]
        output_BSD: Tensor = attention.output(context_BSD)
        return output_BSD
