"""Word vectors in int8 that are read as rows and multiplied by: a tied table, held once.

A table [V, D] whose transpose is the output layer has a scale for each row, which is that of the
output layer's channel. Rows are taken and made float32 again; ONNX Runtime turns the table around
while it loads, where it packs the weights of products anyway.

    Gather(table.int8, ids) -> Cast -> Mul(Gather(table.scale, ids)) -> float32 [.., D]
    Transpose(table.int8) -> int8 [D, V], Squeeze(table.scale) -> [V]: as the product has them

Without this the table is in a file twice, once in float32: in GPT-2's, that is more than half.
"""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.graphs.tensors import array_of, derived, transposed

LAST_AXIS = "tied.last_axis"


def share_tied_tables(model: onnx.ModelProto) -> None:
    """Replace float tables that `quantize_rows` has rounded for a product too, in place."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    tables = {
        node.input[0]
        for node in graph.node
        if node.op_type == "Gather" and _product_of(node.input[0]) in weights
    }
    if not tables:
        return
    nodes: list[NodeProto] = []
    constants = [numpy_helper.from_array(np.array([1], np.int64), LAST_AXIS)]
    for table in sorted(tables):
        rounded, scale = (f"{_stem(table)}.{part}" for part in ("int8", "scale"))
        constants.append(transposed(weights[rounded], f"{table}.int8"))
        constants += _column(weights[scale], f"{table}.scale")
        nodes.append(helper.make_node("Transpose", [f"{table}.int8"], [rounded], rounded))
        nodes.append(helper.make_node("Squeeze", [f"{table}.scale", LAST_AXIS], [scale], scale))
    for node in graph.node:
        is_read = node.op_type == "Gather" and node.input[0] in tables
        nodes += _read_rows(node) if is_read else [node]
    del graph.node[:]
    graph.node.extend(nodes)
    computed = {value for node in nodes for value in node.output}
    read = {value for node in nodes for value in node.input} - computed
    kept = [tensor for tensor in (*graph.initializer, *constants) if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _column(vector: TensorProto, name: str) -> list[TensorProto]:
    """A vector [V] as [V, 1]."""
    like = name, [*vector.dims, 1], np.float32
    return derived(vector, "column", [like], lambda: [array_of(vector)[:, None]])


def _stem(table: str) -> str:
    """The name of a table's product, as `with_products_as_matmul` gives it."""
    return f"{table}.transposed"


def _product_of(table: str) -> str:
    return f"{_stem(table)}.int8"


def _read_rows(node: NodeProto) -> Iterator[NodeProto]:
    table, ids = node.input
    rows, floats, scales = (f"{node.output[0]}.{part}" for part in ("int8", "float", "scale"))
    yield helper.make_node("Gather", [f"{table}.int8", ids], [rows], rows)
    yield helper.make_node("Cast", [rows], [floats], floats, to=TensorProto.FLOAT)
    yield helper.make_node("Gather", [f"{table}.scale", ids], [scales], scales)
    yield helper.make_node("Mul", [floats, scales], node.output, node.name)
