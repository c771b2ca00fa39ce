"""The graph that gives attention weights: traced with every layer's weights among its outputs."""

import copy
import math

import onnx
import torch

from export.graphs.graph import clean, export_program
from export.graphs.lstm import emit_lstms
from models.checkpoints.checkpoint import Checkpoint
from models.networks.attending import TARGET, Attending

OUTPUT = "attentions"
MAX_VALUES = 2**24  # layers x heads x tokens^2 of one text: 64 MiB, all computed at once


def longest_text(num_layers: int, num_heads: int) -> int:
    """Tokens whose matrices are within bounds."""
    return math.isqrt(MAX_VALUES // (num_layers * num_heads))


def output_name(checkpoint: Checkpoint) -> str:
    """The name of the network's own output."""
    return str(getattr(checkpoint.model, "output_name", "logits"))


def trace_attention(shown: Attending, own_output: str) -> onnx.ModelProto:
    """The graph of a network that shows where it looks."""
    batch, source, target = (torch.export.Dim(name) for name in ("batch", "sequence", "target"))
    shapes = tuple({0: batch, 1: target if name == TARGET else source} for name in shown.inputs)
    # No two sizes alike: what is equal by chance would become fixed.
    lengths = (9 if name == TARGET else 7 for name in shown.inputs)
    example = [torch.ones(2, length, dtype=torch.int64) for length in lengths]
    traced = copy.deepcopy(shown)
    emit_lstms(traced)
    program = export_program(traced, example, shown.inputs, (shapes,))
    return clean(program, shown.inputs, (OUTPUT, own_output))


def _num_matrices(shown: Attending) -> tuple[int, int]:
    """Layers and heads that are shown."""
    with torch.inference_mode():
        weights, _ = shown(*(torch.ones(1, 2, dtype=torch.int64) for _ in shown.inputs))
    return weights.shape[1], weights.shape[2]
