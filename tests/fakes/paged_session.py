"""A session over a graph with `PagedAttention`, which the CPU cannot run.

ONNX's reference evaluator computes it, with the operator in NumPy, over memory that is bound as the
server binds it.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from service.contract.tensors import DATATYPES, Datatype, Signature, TensorSpec
from service.errors import ModelFailed
from service.runtime.binding import Bound
from tests.fakes import paged

TYPES: dict[int, Datatype] = {
    TensorProto.FLOAT: DATATYPES["FP32"],
    TensorProto.INT64: DATATYPES["INT64"],
    TensorProto.INT32: DATATYPES["INT32"],
}
NUM_INPUTS = 17  # of the operator, those that a graph leaves out among them


class PagedAttention(OpRun):
    """The operator for the evaluator; query, key and value come as one."""

    op_domain = "com.microsoft"

    def _run(
        self,
        *inputs: np.ndarray | None,
        num_heads: int = 0,
        kv_num_heads: int = 0,
        scale: float = 0.0,
        **_: Any,
    ) -> tuple[np.ndarray, ...]:
        given = [*inputs, *[None] * (NUM_INPUTS - len(inputs))]
        packed, key, value, key_cache, value_cache, starts, past, table = given[:8]
        assert key is value is None
        assert not any(each is not None for each in given[8:16])
        assert packed is not None
        assert key_cache is not None
        assert value_cache is not None
        assert starts is not None
        assert past is not None
        assert table is not None
        check_bounds(given[16], starts, past)
        size = packed.shape[1] // (num_heads + 2 * kv_num_heads)
        ends = np.cumsum([num_heads * size, kv_num_heads * size])
        query, keys, values = np.split(packed, ends, axis=1)
        attention = paged.PagedAttention(num_heads, kv_num_heads, scale)
        context = attention(query, keys, values, key_cache, value_cache, starts, past, table)
        return context.astype(packed.dtype), key_cache, value_cache


def check_bounds(bounds: np.ndarray | None, starts: np.ndarray, past: np.ndarray) -> None:
    """Bounds of a run hold for it; the operator trusts them."""
    if bounds is None:
        return
    new = np.diff(starts)
    longest = (past + new).max()
    assert new.max() <= bounds[0], "a row has more new tokens than its bound says"
    assert longest <= bounds[1], "a row has more tokens than its bound says"
    assert bounds[2] <= longest, "the longest row has fewer tokens than its bound says"


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


def with_candidates(model: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """A copy of a decoder's graph that gives the likeliest tokens of each row too."""
    copied = onnx.ModelProto.FromString(model.SerializeToString())
    graph = copied.graph
    sizes = {"count": [count], "zero": [0], "one": [1], "axis": [1]}
    graph.initializer.extend(
        numpy_helper.from_array(np.array(size, np.int64), f"candidates.{name}")
        for name, size in sizes.items()
    )
    best = [f"candidates.{name}" for name in ("zero", "one", "axis")]
    names = ["top_logits", "top_ids"]
    # The logarithm of the sum is what the likeliest logit loses; ReduceLogSumExp needs cuDNN.
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = [
        ("TopK", ["logits", "candidates.count"], names, {"axis": -1}),
        ("LogSoftmax", ["logits"], ["candidates.logprobs"], {"axis": -1}),
        ("Slice", ["top_ids", *best], ["candidates.best_id"], {}),
        ("Slice", ["top_logits", *best], ["candidates.best"], {}),
        (
            "GatherElements",
            ["candidates.logprobs", "candidates.best_id"],
            ["candidates.logprob"],
            {"axis": 1},
        ),
        ("Sub", ["candidates.best", "candidates.logprob"], ["candidates.log_sum"], {}),
        ("Squeeze", ["candidates.log_sum", "candidates.axis"], ["log_sum"], {}),
    ]
    for operator, taken, given, attributes in nodes:
        graph.node.append(helper.make_node(operator, taken, given, **attributes))
    graph.output.extend(
        (
            helper.make_tensor_value_info("top_logits", TensorProto.FLOAT, ["wanted", count]),
            helper.make_tensor_value_info("top_ids", TensorProto.INT64, ["wanted", count]),
            helper.make_tensor_value_info("log_sum", TensorProto.FLOAT, ["wanted"]),
        )
    )
    return copied


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
