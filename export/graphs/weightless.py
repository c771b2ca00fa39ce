"""Graphs that are traced without weights, which are put in afterwards.

The tracer looks at shapes alone, so a network is traced whose weights are one number each, which is
repeated without memory. Nothing is computed of them: the tracer's optimiser sees no values.
A weight of the graph is a weight of the network, or several of them one below the other, as they
are or transposed; with `LazyTensor`s it is made when it is read.
"""

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import onnx
import onnx_ir
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx_ir.passes.common import CommonSubexpressionEliminationPass
from onnxscript import optimizer
from onnxscript.rewriter import onnx_fusions
from torch import Tensor, nn

from export.graphs.files import without_weights
from export.graphs.operators import kept_operators
from export.graphs.tensors import Array, Later, later
from models.checkpoints.lazy import LazyTensor, realised

Network = TypeVar("Network", bound=nn.Module)
SOURCES = "sources"  # of a weight without numbers: the names of the network's weights in it
NUMPY: dict[torch.dtype, Any] = {
    torch.float32: np.dtype(np.float32),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16),
}
_numbers: "WeakKeyDictionary[nn.Module, int]" = WeakKeyDictionary()
_next_number = count()


def skeleton(network: Network, whole_dims: int = -1) -> Network:
    """A copy in evaluation mode whose weights have no numbers, and know their names.

    Those of at most `whole_dims` dimensions have their numbers, so that the optimiser sees these.
    """
    without: dict[int, Any] = {}
    for name, weight in network.named_parameters():
        if weight.dim() <= whole_dims:
            without[id(weight)] = nn.Parameter(realised(weight).detach(), requires_grad=False)
            continue
        bare = nn.Parameter(torch.empty_like(weight, device="meta"), requires_grad=False)
        setattr(bare, SOURCES, (name,))
        without[id(weight)] = bare
    return copy.deepcopy(network, without).eval()


def stacked(parts: Sequence[Tensor]) -> nn.Parameter:
    """Weights one below the other, which know their names where the parts do."""
    whole = nn.Parameter(torch.cat(tuple(parts)), requires_grad=False)
    sources = [getattr(part, SOURCES, None) for part in parts]
    if all(sources):
        setattr(whole, SOURCES, tuple(name for each in sources if each for name in each))
    return whole


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a network by name, in the type that a graph has them in."""

    tensors: Mapping[str, Tensor]
    dtype: torch.dtype
    number: int  # of the network, for keys

    @classmethod
    def of(cls, network: nn.Module, dtype: torch.dtype) -> "Weights":
        if network not in _numbers:
            _numbers[network] = next(_next_number)
        return cls(dict(network.named_parameters()), dtype, _numbers[network])

    def tensor(
        self, name: str, shape: Sequence[int], sources: Sequence[str], *, is_transposed: bool
    ) -> TensorProto:
        """The graph's tensor of this name: later where a part of it is lazy."""
        parts = [self.tensors[source] for source in sources]

        def rows(part: slice) -> Array:
            return _numpy(_rows_of(parts, part).to(self.dtype))

        def make() -> Array:
            whole = rows(slice(0, sum(len(part) for part in parts)))
            return np.ascontiguousarray(whole.T) if is_transposed else whole

        if not any(isinstance(part, LazyTensor) for part in parts):
            return numpy_helper.from_array(make(), name)
        key = f"{self.number}:{'+'.join(sources)}:{self.dtype}" + ":transposed" * is_transposed
        source = (
            Later(make, columns=lambda part: rows(part).T)
            if is_transposed
            else Later(make, rows=rows)
        )
        return later(name, shape, NUMPY[self.dtype], key, source)


def _rows_of(parts: Sequence[Tensor], rows: slice) -> Tensor:
    """Some rows of tensors one below the other."""
    taken, start = [], 0
    for part in parts:
        inside = slice(max(rows.start - start, 0), min(rows.stop - start, len(part)))
        start += len(part)
        if inside.start >= inside.stop:
            continue
        is_whole = inside == slice(0, len(part))
        taken.append(realised(part if is_whole else _some(part, inside)))
    return taken[0] if len(taken) == 1 else torch.cat(taken)


def _some(part: Tensor, rows: slice) -> Tensor:
    return part.rows(rows) if isinstance(part, LazyTensor) else part[rows]


def _numpy(tensor: Tensor) -> Array:
    numbers = tensor.detach().contiguous()
    if numbers.dtype == torch.bfloat16:
        bits: Array = numbers.view(torch.int16).numpy()
        return bits.view(NUMPY[torch.bfloat16])
    array: Array = numbers.numpy()
    return array


@contextmanager
def tracing(
    module: nn.Module,
    example: Sequence[Tensor],
    names: Sequence[str],
    dynamic_shapes: tuple[Any, ...],
    opset: int,
    *,
    optimize: bool = True,
) -> Iterator[torch.onnx.ONNXProgram]:
    """The program of a module, by `torch.onnx.export`, which is quiet while this is entered."""
    with warnings.catch_warnings(), quiet_exporter(), kept_operators():
        warnings.simplefilter("ignore")  # about versions to come, for torch's own code
        program = torch.onnx.export(
            module,
            tuple(example),
            dynamo=True,
            opset_version=opset,
            input_names=list(names),
            dynamic_shapes=dynamic_shapes,
            verbose=False,
            optimize=optimize,
        )
        assert program is not None, "dynamo=True returns a program"
        yield program


def export_weightless(
    module: nn.Module,
    example: Sequence[Tensor],
    names: Sequence[str],
    dynamic_shapes: tuple[Any, ...],
    opset: int,
    weights: Weights,
) -> onnx.ModelProto:
    """The traced graph of a module made of a `skeleton`, with the weights of the network in it."""
    sources = _with_one_number_each(module, weights.dtype)
    with tracing(module, example, names, dynamic_shapes, opset, optimize=False) as program:
        initializers = program.model.graph.initializers
        without = [value for name, value in initializers.items() if name in sources]
        for value in without:
            value.const_value = None
        optimizer.optimize_ir(program.model)
        # Rotations become nodes, as by the exporter's own optimiser: each with tables of its own.
        if any(onnx_fusions.fuse(program.model).values()):
            CommonSubexpressionEliminationPass()(program.model)
        for value in initializers.values():
            if value.const_value is None:
                value.const_value = _no_numbers(value)
        return _filled(program.model_proto, sources, weights)


def _with_one_number_each(module: nn.Module, dtype: torch.dtype) -> dict[str, tuple[str, ...]]:
    """Give weights without numbers one each; what they are made of, by all of their names.

    Weights that are there, as tables of positions, get the type.
    """
    placed: dict[int, nn.Parameter] = {}
    sources: dict[str, tuple[str, ...]] = {}
    for prefix, each in module.named_modules(remove_duplicate=False):
        for name, weight in each._parameters.items():  # noqa: SLF001 - as torch's functions do
            if weight is None:
                continue
            if id(weight) not in placed:
                given = torch.zeros(1, dtype=dtype).expand(weight.shape)
                placed[id(weight)] = nn.Parameter(
                    given if weight.is_meta else weight.to(dtype), requires_grad=False
                )
                setattr(placed[id(weight)], SOURCES, getattr(weight, SOURCES, None))
                placed[id(placed[id(weight)])] = placed[id(weight)]
            each._parameters[name] = placed[id(weight)]  # noqa: SLF001
            known = getattr(placed[id(weight)], SOURCES)
            if known:
                sources[f"{prefix}.{name}".removeprefix(".")] = known
    return sources


def _no_numbers(value: onnx_ir.Value) -> onnx_ir.ExternalTensor:
    assert value.dtype is not None
    assert isinstance(value.shape, onnx_ir.Shape)
    return onnx_ir.ExternalTensor(
        "weightless", None, None, value.dtype, shape=value.shape, name=value.name or ""
    )


def _filled(
    model: onnx.ModelProto, sources: Mapping[str, Sequence[str]], weights: Weights
) -> onnx.ModelProto:
    """The graph with tensors in the place of weights without numbers, transposed if read so."""
    graph = model.graph
    missing = {tensor.name: tensor for tensor in graph.initializer if tensor.external_data}
    turned = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] in missing
    }
    nodes = [node for node in graph.node if node.output[0] not in turned]
    read = {name for node in nodes for name in node.input}
    read |= {output.name for output in graph.output}
    tensors = [tensor for tensor in graph.initializer if tensor.name not in missing]
    for name, tensor in missing.items():
        if name in read:
            made = weights.tensor(name, tensor.dims, sources[name], is_transposed=False)
            tensors.append(made)
    for name, original in turned.items():
        shape = missing[original].dims[::-1]
        tensors.append(weights.tensor(name, shape, sources[original], is_transposed=True))
    filled = without_weights(model)
    del filled.graph.node[:], filled.graph.value_info[:]
    filled.graph.node.extend(nodes)
    filled.graph.initializer.extend(tensors)
    return filled


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """The exporter logs that torchvision is absent, and its optimiser that values are."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
