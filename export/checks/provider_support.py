"""Whether the CUDA provider has a kernel for every node of a graph, by a table of its kernels.

ONNX Runtime computes a node without a kernel on the CPU, and its inputs and outputs are copied
there and back in every run; a graph with such a node is refused with the node's name. Nodes that
compute sizes of tensors are left out of that: ONNX Runtime places them on the CPU on purpose, as
sizes are known there. They are those that depend on nothing but shapes and constants.

Types are followed through the graph by the schemas of its operators, as com.microsoft's are unknown
to ONNX's own inference. docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx
from onnx import AttributeProto, NodeProto, TensorProto, defs

from export.checks.cuda_kernels import KERNELS, MICROSOFT, OPSETS
from export.errors import ExportError
from export.settings import ExportSettings, GraphKind
from service.contract.manifest import GraphDevice
from service.contract.precision import HALF

MAX_NAMED = 5  # nodes in a message
NAMES: dict[int, str] = {
    TensorProto.FLOAT: "float",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.BOOL: "bool",
    TensorProto.INT8: "int8",
    TensorProto.UINT8: "uint8",
}


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A node without a kernel."""

    name: str
    operator: str
    types: tuple[str, ...]  # of its type parameters, as far as they are known

    def __str__(self) -> str:
        return f"{self.name} ({self.operator}{' of ' if self.types else ''}{', '.join(self.types)})"


def device_of(graph: onnx.ModelProto, kind: GraphKind, settings: ExportSettings) -> GraphDevice:
    """The device that a graph is for; `ExportError` where that is CUDA and a node has no kernel."""
    if settings.target == "cuda" or (kind.precision in HALF and settings.target == "all"):
        check_supported(graph)
    if kind.precision == "bf16" or kind.layout:
        return "cuda"
    is_rounded = kind.precision not in ("fp32", "fp16")
    return "cpu" if is_rounded or unsupported_nodes(graph) else "any"


def check_supported(model: onnx.ModelProto) -> None:
    """Raise `ExportError` that names the nodes that CUDA has no kernel for."""
    missing = unsupported_nodes(model)
    if missing:
        named = ", ".join(map(str, missing[:MAX_NAMED]))
        more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
        raise ExportError(
            f"CUDA has no kernel for {len(missing)} of {len(model.graph.node)} nodes: {named}{more}"
        )


def unsupported_nodes(model: onnx.ModelProto) -> tuple[Unsupported, ...]:
    """The nodes that would be computed on the CPU, other than those that compute sizes."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    assert versions[""] in OPSETS, "exports have one of these"
    graph = model.graph
    types = {tensor.name: _named(tensor.data_type) for tensor in graph.initializer}
    types |= {value.name: _named(value.type.tensor_type.elem_type) for value in graph.input}
    sizes = {tensor.name for tensor in graph.initializer} | {""}
    missing: list[Unsupported] = []
    for node in graph.node:
        bound = _bind(node, types, versions[""])
        only_sizes = node.op_type == "Shape" or sizes.issuperset(node.input)
        if only_sizes:
            sizes.update(node.output)
        elif not _has_kernel(node, bound):
            known = tuple(dict.fromkeys(bound.values()))
            missing.append(Unsupported(node.name, node.op_type, known))
    return tuple(missing)


def _has_kernel(node: NodeProto, bound: Mapping[str, str]) -> bool:
    kernel = KERNELS.get(node.op_type)
    if kernel is None:
        return False
    return all(bound[name] in types for name, types in kernel.items() if name in bound)


def _bind(node: NodeProto, types: dict[str, str], opset: int) -> dict[str, str]:
    """The types of the node's parameters by its inputs; those of its outputs go into `types`."""
    inputs, outputs = _parameters(node, opset)
    bound: dict[str, str] = {}
    for parameter, value in zip(inputs, node.input, strict=False):
        if value in types:
            bound.setdefault(parameter, types[value])
    stated = _stated_type(node)
    for parameter, value in zip(outputs, node.output, strict=False):
        is_fixed = parameter.startswith("tensor(")
        known = parameter[len("tensor(") : -1] if is_fixed else bound.get(parameter, stated)
        if known:
            types[value] = known
    return {name: known for name, known in bound.items() if not name.startswith("tensor(")}


def _parameters(node: NodeProto, opset: int) -> tuple[list[str], list[str]]:
    """The type of each input and output in the schema: a parameter, or `tensor(...)`."""
    if node.domain:
        inputs, outputs = MICROSOFT.get(node.op_type, ((), ()))
        return list(inputs), list(outputs)
    schema = defs.get_schema(node.op_type, opset, node.domain)
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    only = {name: types[0] for name, types in allowed.items() if len(types) == 1}
    taken, given = (
        [only.get(each.type_str, each.type_str) for each in side]
        for side in (schema.inputs, schema.outputs)
    )
    return list(_as_many(taken, len(node.input))), list(_as_many(given, len(node.output)))


def _as_many(declared: list[str], count: int) -> Iterator[str]:
    """The last one over again, as of `Concat`, whose inputs are any number."""
    for index in range(count):
        yield declared[min(index, len(declared) - 1)]


def _stated_type(node: NodeProto) -> str:
    """The type of an output that an attribute states, as of `Cast`; integers otherwise."""
    for attribute in node.attribute:
        if node.op_type == "Cast" and attribute.name == "to":
            return _named(attribute.i)
        if attribute.type == AttributeProto.TENSOR:
            return _named(attribute.t.data_type)
    return "float" if node.op_type == "ConstantOfShape" else "int64"


def _named(data_type: int) -> str:
    return NAMES.get(data_type, f"type {data_type}")
