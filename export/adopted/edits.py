"""Changes of a graph that is there: new nodes, values under other names, nodes that nothing needs.

Works on the message alone, with onnx and numpy: no weights are read, and none are copied. Graphs
within nodes (`If`, `Loop`) may read values of the graph around them, so names are followed there.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from export.adopted.editing import opset_of, within

AXES_AS_INPUT = 13  # the first version of operators whose Unsqueeze takes axes as an input
LAST = np.iinfo(np.int64).max


class Edit:
    """Nodes and constants to be put into a graph, whose names begin with `prefix`."""

    def __init__(self, model: ModelProto, prefix: str) -> None:
        self._opset = opset_of(model)
        self._prefix = prefix
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    def constant(self, value: object, dtype: type[np.generic] = np.int64) -> str:
        """The name of a constant."""
        array = np.asarray(value, dtype)
        name = f"{self._prefix}.{dtype.__name__}{list(array.shape)}={array.tobytes().hex()}"
        self.constants.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def node(
        self,
        operator: str,
        *inputs: str,
        output: str = "",
        **attributes: Any,  # noqa: ANN401 - of any type that an operator takes
    ) -> str:
        """The name of the first output of a new node."""
        output = output or f"{self._prefix}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def unsqueeze(self, value: str, *axes: int) -> str:
        if self._opset < AXES_AS_INPUT:
            return self.node("Unsqueeze", value, axes=list(axes))
        return self.node("Unsqueeze", value, self.constant(axes))

    def integer(self, value: str) -> str:
        """A value as int64."""
        return self.node("Cast", value, to=TensorProto.INT64)

    def size(self, value: str, axis: int) -> str:
        """The length of an axis, int64 without dimensions."""
        return self.node("Gather", self.node("Shape", value), self.constant(axis), axis=0)

    def up_to(self, end: str) -> str:
        """Whole numbers from 0 to below `end`."""
        return self.node("Range", self.constant(0), end, self.constant(1))

    def as_vector(self, value: str) -> str:
        return self.node("Reshape", value, self.constant([-1]))


def reads(node: NodeProto) -> set[str]:
    """Values that a node reads, those of graphs within it among them."""
    names = {name for name in node.input if name}
    for graph in within(node):
        own = {value.name for value in graph.input} | {each.name for each in graph.initializer}
        for inner in graph.node:
            names |= reads(inner) - own
            own.update(inner.output)
        names |= {value.name for value in graph.output} - own
    return names


def rename(nodes: Iterable[NodeProto], names: Mapping[str, str]) -> None:
    """Give values other names, wherever nodes read or write them."""
    for node in nodes:
        for side in (node.input, node.output):
            for place, name in enumerate(side):
                if name in names:
                    side[place] = names[name]
        for graph in within(node):
            rename(graph.node, names)
            for value in graph.output:
                value.name = names.get(value.name, value.name)


def surround(graph: GraphProto, before: Iterable[NodeProto], after: Iterable[NodeProto]) -> None:
    """Put nodes before and after those of a graph, as each must follow what it reads."""
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)


def keep_needed(graph: GraphProto) -> None:
    """Remove nodes and weights that no output of the graph depends on."""
    needed = {value.name for value in graph.output}
    for index in reversed(range(len(graph.node))):
        if needed.isdisjoint(graph.node[index].output):
            del graph.node[index]
        else:
            needed |= reads(graph.node[index])
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in needed:
            del graph.initializer[index]
