"""Export an image classifier with its attention made visible. Each step may refuse.

    pixel_values  [B, C, H, W]      float32, normalised as the manifest says
    logits        [B, labels]       float32: the same as without this
    attentions    [B, L, H, S, S]   float32; S is the class token and the patches

Of each matrix's row the weights sum to one. Nothing is fused, as in `attention.py`.
"""

import numpy as np
import onnx
import torch

from export.checks.parity import GraphRunner
from export.checks.provider_support import device_of
from export.errors import ExportError
from export.graphs.attention import MAX_VALUES, OUTPUT
from export.graphs.graph import open_session
from export.graphs.vision import INPUT, _pixels, trace_image_attention, trace_vision
from export.graphs.vision import OUTPUT as LOGITS
from export.recipes.attention import checked
from export.recipes.vision import image_fields
from export.settings import ExportSettings, GraphKind, HeldOut, OnStep, check_fp32
from export.writer import ExportedModel
from models.checkpoints.checkpoint import Checkpoint
from models.networks.attending import attending
from models.networks.vit import VisionTransformer
from service.contract.manifest import Manifest

NUM_IMAGES = 4  # of noise, that are compared


def export_image_attention(
    checkpoint: Checkpoint, settings: ExportSettings, _: HeldOut, on_step: OnStep
) -> ExportedModel:
    """The graph with attention weights, or `ExportError` where an image has too many."""
    check_fp32(settings, "that of attention made visible")
    network = checkpoint.model
    assert isinstance(network, VisionTransformer), "texts have their own recipe"
    config = network.config
    if config.num_class_tokens > 1:
        raise ExportError(
            f"an image has {config.num_class_tokens} tokens before its patches; attention is shown "
            "where there is one"
        )
    num_values = config.num_layers * config.num_heads * config.max_positions**2
    if num_values > MAX_VALUES:
        raise ExportError(
            f"an image has {num_values} attention weights, an export has at most {MAX_VALUES}"
        )
    on_step("tracing the graph")
    graph = trace_image_attention(attending(network), config)
    device = device_of(graph, GraphKind("fp32"), settings)
    on_step("comparing with PyTorch")
    parity = check_image_attention(network, graph)
    manifest = Manifest(
        task="image-attention",
        precision="fp32",
        device=device,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        parity={name: float(f"{value:.2e}") for name, value in parity.items()},
        **image_fields(checkpoint, settings),
    )
    return ExportedModel(graph, None, manifest)


def check_image_attention(network: VisionTransformer, graph: onnx.ModelProto) -> dict[str, float]:
    """The largest differences, or `ExportError` where one is above what is allowed.

    Of the weights: to PyTorch's, and of their rows' sums to one. Of the logits: to those of the
    network untouched, and to those of its fused graph.
    """
    pixels = _pixels(network.config, NUM_IMAGES)
    session = open_session(graph)
    by_graph = dict(
        zip((OUTPUT, LOGITS), session.run({INPUT: pixels}, [OUTPUT, LOGITS]), strict=True)
    )
    with torch.inference_mode():
        weights, _ = attending(network)(torch.from_numpy(pixels))
        logits = network.eval()(torch.from_numpy(pixels)).numpy()
    fused = GraphRunner(trace_vision(network))({INPUT: pixels})
    figures = {
        "attention": by_graph[OUTPUT] - weights.numpy(),
        "row_sum": by_graph[OUTPUT].sum(axis=-1) - 1.0,
        "output": by_graph[LOGITS] - logits,
        "fused_output": by_graph[LOGITS] - fused,
    }
    return checked({name: float(np.abs(value).max()) for name, value in figures.items()})
