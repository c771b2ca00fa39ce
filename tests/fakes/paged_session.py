"""A session over a graph with `PagedAttention`, which the CPU cannot run.

ONNX's reference evaluator computes it, with the operator in NumPy, over memory that is bound as the
server binds it.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from export.checks.paged_decoding import PagedAttention
from service.contract.tensors import DATATYPES, Datatype, Signature, TensorSpec
from service.errors import ModelFailed
from service.runtime.binding import Bound

TYPES: dict[int, Datatype] = {
    TensorProto.FLOAT: DATATYPES["FP32"],
    TensorProto.INT64: DATATYPES["INT64"],
    TensorProto.INT32: DATATYPES["INT32"],
}


@dataclass
class GraphSession:
    """A graph as an open session; `recorded` counts its runs by their CUDA graph's number."""

    model: onnx.ModelProto
    recorded: dict[int | None, int] = field(default_factory=dict)
    fails: bool = False

    def __post_init__(self) -> None:
        self.evaluator = ReferenceEvaluator(self.model, new_ops=[PagedAttention])

    @property
    def signature(self) -> Signature:
        graph = self.model.graph
        return Signature(
            tuple(_spec(value) for value in graph.input),
            tuple(_spec(value) for value in graph.output),
        )

    @property
    def inputs_on_host(self) -> frozenset[str]:
        return frozenset({"attention_metadata"})

    def bind(
        self,
        inputs: Mapping[str, Bound],
        outputs: Mapping[str, Bound],
        graph_id: int | None = None,
    ) -> "BoundRun":
        run = BoundRun(self, graph_id)
        run.bind(inputs, outputs)
        return run


@dataclass
class BoundRun:
    """A run over memory at fixed addresses. A recorded one keeps the shapes of its first."""

    session: GraphSession
    graph_id: int | None
    inputs: dict[str, Bound] = field(default_factory=dict)
    outputs: dict[str, Bound] = field(default_factory=dict)

    def bind(self, inputs: Mapping[str, Bound], outputs: Mapping[str, Bound]) -> None:
        is_recorded = self.graph_id is not None and self.graph_id >= 0
        assert not (self.inputs and is_recorded), "what is recorded stays where it is"
        self.inputs |= inputs
        self.outputs |= outputs

    def run(self) -> None:
        counts = self.session.recorded
        counts[self.graph_id] = counts.get(self.graph_id, 0) + 1
        if self.session.fails:
            raise ModelFailed("as it was told to")
        names = [value.name for value in self.session.model.graph.output]
        assert set(names) == self.outputs.keys()
        feeds = {name: memory_of(array) for name, array in self.inputs.items()}
        results = self.session.evaluator.run(names, feeds)
        for name, result in zip(names, results, strict=True):
            target = memory_of(self.outputs[name])
            assert target.shape == result.shape, f"'{name}' is {result.shape}"
            if not np.shares_memory(target, result):
                target[...] = result


def memory_of(array: Bound) -> np.ndarray:
    """The memory itself, as an array."""
    if isinstance(array, np.ndarray):
        return array
    raw = (ctypes.c_uint8 * array.nbytes).from_address(array.address)
    data: np.ndarray = np.frombuffer(memoryview(raw), array.datatype.dtype)
    return data.reshape(array.shape)


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    tensor = value.type.tensor_type
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    return TensorSpec(value.name, TYPES[tensor.elem_type], dims)
