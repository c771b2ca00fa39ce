"""A recurrent encoder-decoder as one ONNX graph that decodes greedily by itself.

Each of its two recurrences is ONNX's operator LSTM: the encoder's with the length of every row, so
that padding is never read; the decoder's once per step, as what it is given is what it said before.
The number of steps T is fixed, rows and source tokens are not.

    source     [B, S]     int64, right-padded with the pad token
    target     [B, T]     int64, padding after the end token
    attention  [B, T, S]  float32, absent without attention; zeros after the end
"""
# ruff: noqa: N803, N806 - suffixes are array layouts, see above; D hidden size

import copy

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from export.errors import ExportError
from export.graphs.graph import clean, export_program
from export.graphs.lstm import OPERATOR, emit_lstms
from models.networks.recurrent import RecurrentSeq2Seq

INPUTS = ("source",)
OUTPUTS = ("target", "attention")


def trace_greedy(network: RecurrentSeq2Seq, num_steps: int) -> onnx.ModelProto:
    """The graph of `network.greedy`, or `ExportError` unless it has an LSTM for each step."""
    emitted = copy.deepcopy(network).eval()
    emit_lstms(emitted)
    outputs = OUTPUTS if network.score is not None else OUTPUTS[:1]
    # As many tokens as no size of the network: what is equal by chance would become fixed.
    example = (torch.ones(2, 7, dtype=torch.int64),)
    shapes = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")},)
    program = export_program(_Greedy(emitted, num_steps), example, INPUTS, shapes)
    model = clean(_sharing_weights(program), INPUTS, outputs)
    num_found = sum(node.op_type == OPERATOR for node in model.graph.node)
    if num_found != num_steps + 1:
        raise ExportError(
            f"the graph has {num_found} {OPERATOR} nodes, expected one for the encoder and one for "
            f"each of {num_steps} steps"
        )
    return model


def _sharing_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Each weight once: the tracer turns a matrix around anew for every step that multiplies by it.

    Then ONNX Runtime sees too what every step computes of the same, the encoder's keys, and
    computes it once.
    """
    graph = model.graph
    first: dict[tuple[object, ...], str] = {}
    names = {
        tensor.name: first.setdefault(
            (tensor.data_type, *tensor.dims, numpy_helper.to_array(tensor).tobytes()), tensor.name
        )
        for tensor in graph.initializer
    }
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    kept = [tensor for tensor in graph.initializer if names[tensor.name] == tensor.name]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return model


class _Greedy(nn.Module):
    """A network's own decoding, over sources whose padding tells where they end."""

    def __init__(self, network: RecurrentSeq2Seq, num_steps: int) -> None:
        super().__init__()
        self.network = network
        self.num_steps = num_steps

    def forward(self, source_BS: Tensor) -> tuple[Tensor, ...]:
        mask_BS = (source_BS != self.network.config.pad_token_id).to(torch.int64)
        target_BT, weights_BTS = self.network.greedy(source_BS, mask_BS, self.num_steps)
        return (target_BT,) if weights_BTS is None else (target_BT, weights_BTS)
