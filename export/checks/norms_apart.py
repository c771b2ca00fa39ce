"""A decoder's graph whose norms of queries and keys are nodes, which the operator computes on CUDA.

ONNX Runtime's CPU kernel of `GroupQueryAttention` does not take the weights of these norms. So that
the CPU can check a graph for CUDA, they are taken out of the operator again: each head of queries
and keys is normalised before it, and everything else stays. docs/how-to/cuda.md says what was
verified on CUDA.
"""

import copy
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from export.graphs.cached_decoder import EPSILON, NORMS_AT, OPERATOR


def with_norms_apart(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy, or the model itself where no operator normalises."""
    if not any(_norms(node) for node in model.graph.node):
        return model
    copied = copy.deepcopy(model)
    graph = copied.graph
    head_sizes = {tensor.name: tensor.dims[0] for tensor in graph.initializer if tensor.dims}
    nodes: list[NodeProto] = []
    for node in graph.node:
        if norms := _norms(node):
            sizes, before = _apart(node, norms, head_sizes[norms[0]])
            graph.initializer.extend(sizes)
            nodes.extend(before)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return copied


def _norms(node: NodeProto) -> list[str]:
    """The names of the weights for queries and for keys; none where the operator has none."""
    return list(node.input[NORMS_AT:]) if node.op_type == OPERATOR else []


def _apart(
    node: NodeProto, norms: list[str], head_size: int
) -> tuple[list[onnx.TensorProto], list[NodeProto]]:
    """Constants and nodes that go before the operator, which takes what they give."""
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    heads = [attributes["num_heads"], *[attributes["kv_num_heads"]] * 2]
    named = {
        f"{node.name}.sizes": np.array(heads) * head_size,
        f"{node.name}.by_head": np.array([0, 0, -1, head_size]),
        f"{node.name}.together": np.array([0, 0, -1]),
    }
    sizes, by_head, together = named
    parts = [f"{node.name}.{part}" for part in ("query", "key", "value")]

    def nodes() -> Iterator[NodeProto]:
        yield helper.make_node("Split", [node.input[0], sizes], parts, axis=-1)
        for part, weight in zip(parts, norms, strict=False):
            yield helper.make_node("Reshape", [part, by_head], [f"{part}.heads"])
            normed = [f"{part}.heads", weight], [f"{part}.normed"]
            yield helper.make_node(
                "RMSNormalization", *normed, axis=-1, epsilon=attributes[EPSILON]
            )
            yield helper.make_node("Reshape", [f"{part}.normed", together], [f"{part}.given"])

    made = list(nodes())
    kept = [name for name in node.attribute if name.name != EPSILON]
    del node.attribute[:]
    node.attribute.extend(kept)
    others = list(node.input[len(parts) : NORMS_AT])
    while not others[-1]:
        others.pop()
    node.input[:] = [f"{parts[0]}.given", f"{parts[1]}.given", parts[2], *others]
    constants = [
        numpy_helper.from_array(value.astype(np.int64), name) for name, value in named.items()
    ]
    return constants, made
