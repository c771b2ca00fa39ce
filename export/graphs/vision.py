"""The graph of an image classifier: pixels in, logits out, attention as one node a layer."""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, C channels, H and W pixels, S tokens, D

import copy

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from export.graphs.attention import OUTPUT as ATTENTIONS
from export.graphs.graph import DTYPES, check_fused, clean, export_program
from models.networks.attending import Attending
from models.networks.attention import MultiHeadAttention
from models.networks.vit import VisionTransformer, ViTConfig
from service.contract.manifest import Precision

INPUT, OUTPUT, OPERATOR = "pixel_values", "logits", "Attention"


def trace_vision(network: VisionTransformer, precision: Precision = "fp32") -> onnx.ModelProto:
    """The graph of a network, or `ExportError` unless each layer's attention became one node."""
    fused = copy.deepcopy(network).eval()
    for parent in list(fused.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, MultiHeadAttention):
                setattr(parent, name, _FusedAttention(child))
    rows = torch.export.Dim("batch")
    example = (torch.from_numpy(_pixels(network.config, num_images=2)),)
    wrapped = _Network(fused.to(DTYPES.get(precision, torch.float32)))
    program = export_program(wrapped, example, (INPUT,), ({0: rows},))
    model = clean(program, (INPUT,), (OUTPUT,))
    check_fused(model, OPERATOR, network.config.num_layers)
    return model


def trace_image_attention(shown: Attending, config: ViTConfig) -> onnx.ModelProto:
    """The graph of a network that shows its attention, with the logits of its own."""
    rows = torch.export.Dim("batch")
    example = (torch.from_numpy(_pixels(config, num_images=2)),)
    program = export_program(copy.deepcopy(shown), example, (INPUT,), (({0: rows},),))
    return clean(program, (INPUT,), (ATTENTIONS, OUTPUT))


def _pixels(config: ViTConfig, num_images: int) -> np.ndarray:
    shape = (num_images, config.channels, config.height, config.width)
    return np.random.default_rng(0).standard_normal(shape, np.float32)


class _Network(nn.Module):
    """Gives the network's weights the names of the checkpoint, and its ends float32."""

    def __init__(self, network: VisionTransformer) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.network(pixel_values.to(self.network.output.weight.dtype))
        return logits.float()


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
