"""A module's ONNX graph: trace it, clean it, count what was fused.

The same weights give the same bytes: names are renumbered, and everything that tells
where or when the trace was made is removed. docs/how-to/cuda.md says what was verified on CUDA.
"""

import copy
import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.graphs.exact_products import has_saturating_products, with_exact_products
from export.graphs.files import check, num_bytes, path_for_session, save, settled
from export.graphs.fused_attention import fuse_attention
from export.graphs.lstm import emit_lstms
from export.graphs.packing import Packing, Padded
from export.graphs.weightless import Weights, export_weightless, tracing
from export.settings import Operator
from models.networks.heads import TextNetwork
from service.contract.manifest import MODEL_FILENAME, Precision
from service.contract.precision import INT8_PRODUCTS
from service.runtime.cpus import available_cpus, cpu_flags
from service.runtime.session import OnnxSession, SessionOptions

OPSET = 23  # the first with Attention
LENGTHS_OPSET = 24  # the first whose Attention takes the number of each row's keys
DTYPES: dict[str, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}
# A session of a message needs it as bytes and taken apart beside its own weights: three times.
MAX_SERIALIZED_BYTES = 2**30


def trace(
    network: TextNetwork,
    operator: Operator,
    *,
    precision: Precision = "fp32",
    is_padded: bool = False,
) -> onnx.ModelProto:
    """The fused graph of a network: int64 [B, S] inputs, float32 outputs.

    In fp16 and bf16, which are for CUDA, `Attention` is told lengths: a mask would keep flash
    attention from being taken. Raises `ExportError` unless the attention of every layer that the
    output depends on became exactly one node.
    """
    fused = copy.deepcopy(network).eval()
    dtype = DTYPES.get(precision, torch.float32)
    by_length = operator == "Attention" and dtype != torch.float32
    layout = partial(Padded if is_padded else Packing, by_length=by_length)
    num_fused = fuse_attention(fused, operator, layout)
    num_lstms = emit_lstms(fused)
    if num_fused < network.num_attentions:
        raise ExportError(f"fused {num_fused} attentions of {network.num_attentions}")
    wrapped = Float32Output(fused.to(dtype))
    opset = LENGTHS_OPSET if by_length else OPSET
    model = trace_texts(wrapped, network.input_names, network.output_names, opset=opset)
    share_matrices(model)
    check_fused(model, operator, network.num_attentions)
    check_fused(model, "LSTM", num_lstms)
    return model


def trace_texts(
    module: nn.Module,
    inputs: Sequence[str],
    outputs: Sequence[str],
    tokens: str = "sequence",
    opset: int = OPSET,
    weights: Weights | None = None,
) -> onnx.ModelProto:
    """The graph of a module whose inputs are int64 [B, S]; `tokens` is the name of S.

    `weights` are those of a module that is made of a `skeleton`.
    """
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim(tokens)}
    # A tensor each: the tracer takes one tensor given twice for one input.
    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in inputs)
    shapes = (shape,) * len(inputs)
    if weights is not None:
        return clean(
            export_weightless(module, example, inputs, shapes, opset, weights), inputs, outputs
        )
    return clean(export_program(module, example, inputs, shapes, opset), inputs, outputs)


def export_program(
    module: nn.Module,
    example: Sequence[Tensor],
    names: Sequence[str],
    dynamic_shapes: tuple[Any, ...],
    opset: int = OPSET,
) -> onnx.ModelProto:
    """Trace a module with `torch.onnx.export`; values still have the tracer's names."""
    with tracing(module, example, names, dynamic_shapes, opset) as program:
        return program.model_proto


def share_matrices(model: onnx.ModelProto) -> None:
    """Keep matrices with the same bytes once: the tracer writes one for each use of a layer."""
    first: dict[tuple[int, tuple[int, ...], bytes], str] = {}
    names: dict[str, str] = {}
    for tensor in model.graph.initializer:
        is_matrix = len(tensor.dims) > 1 and tensor.raw_data
        digest = hashlib.sha256(tensor.raw_data).digest() if is_matrix else tensor.name.encode()
        key = tensor.data_type, tuple(tensor.dims), digest
        names[tensor.name] = first.setdefault(key, tensor.name)
    for node in model.graph.node:
        node.input[:] = [names.get(value, value) for value in node.input]
    for index in reversed(range(len(model.graph.initializer))):
        name = model.graph.initializer[index].name
        if names[name] != name:
            del model.graph.initializer[index]


def check_fused(model: onnx.ModelProto, operator: str, num_layers: int) -> None:
    """Raise `ExportError` unless the graph holds one such node per layer."""
    num_fused = fused_ops(model).get(operator, 0)
    if num_fused != num_layers:
        raise ExportError(f"the graph has {num_fused} {operator} nodes for {num_layers} layers")


def fused_ops(model: onnx.ModelProto) -> dict[str, int]:
    """The number of occurrences of each fused operator."""
    attentions = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "PagedAttention")
    fused = (*attentions, "LSTM", "LayerNormalization", "Gelu")
    counts = Counter(node.op_type for node in model.graph.node)
    return {name: counts[name] for name in fused if counts[name]}


class Float32Output(nn.Module):
    """Whatever a network computes in, its answers are float32."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, third: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        given = (input_ids, attention_mask) if third is None else (input_ids, attention_mask, third)
        outputs = self.network(*given)
        return tuple(
            each.float() for each in (outputs if isinstance(outputs, tuple) else (outputs,))
        )


def clean(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    """Rename values by position and drop the tracer's notes about this machine."""
    graph = model.graph
    names = dict(zip((value.name for value in graph.input), inputs, strict=True))
    names |= dict(zip((value.name for value in graph.output), outputs, strict=True))
    prefix = "network."
    for tensor in graph.initializer:
        short = tensor.name.removeprefix(prefix)
        # What the tracer computed has the name of its operator, which an output may have too.
        names[tensor.name] = f"{short}.computed" if short in (*inputs, *outputs) else short
    for index, node in enumerate(graph.node):
        for position, value in enumerate(node.output):
            names.setdefault(value, f"v{index}_{position}" if value else "")
    for index, node in enumerate(graph.node):
        node.name = f"{node.op_type}_{index}"
        node.input[:] = [names[value] if value else "" for value in node.input]
        node.output[:] = [names[value] if value else "" for value in node.output]
        node.doc_string = ""
        del node.metadata_props[:]
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
        tensor.doc_string = ""
    for end in (*graph.input, *graph.output):
        end.name = names[end.name]
        end.doc_string = ""
        del end.metadata_props[:]
    del graph.value_info[:], graph.metadata_props[:], model.metadata_props[:]
    graph.name, graph.doc_string, model.doc_string = "attendant", "", ""
    model.producer_name, model.producer_version = "attendant", ""
    check(model)
    return model


def open_session(model: onnx.ModelProto, max_bytes: int = MAX_SERIALIZED_BYTES) -> OnnxSession:
    """A graph held in memory, as the server computes it; a larger one by way of a file.

    8-bit products are exact, also where the processor's would not be and no server took them.
    """
    options = SessionOptions(num_threads=available_cpus())
    if has_saturating_products(model) and cpu_flags().isdisjoint(INT8_PRODUCTS):
        model = with_exact_products(model)
    [model] = settled([model])
    path = path_for_session(model)
    if path is not None:
        return OnnxSession(path, options)
    if num_bytes(model) <= max_bytes:
        return OnnxSession(model.SerializeToString(), options)
    with TemporaryDirectory() as folder:
        path = Path(folder) / MODEL_FILENAME
        save(model, path, max_bytes)
        return OnnxSession(path, options)
