"""Nodes added to a graph that another program wrote, by operators of every opset since 11.

A graph's own values keep their names; what is added gets names that it does not have. Knows nothing
of tasks. Imports no PyTorch.
"""

from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

ADDED = "attendant_"  # what names of added nodes and values begin with
FIRST_AXES_INPUT = {"ReduceMax": 18}  # opset since which axes are an input


class Editor:
    """Adds nodes at the end of a graph, which it changes."""

    def __init__(self, model: ModelProto) -> None:
        self.model, self.graph = model, model.graph
        self.opset = opset_of(model)
        self._names = set(names_in(model.graph))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401
        """The name of the output of a new node."""
        output = self._new(operator)
        node = helper.make_node(operator, list(inputs), [output], name=output, **attributes)
        self.graph.node.append(node)
        return output

    def add_first(self, operator: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401
        """The name of the output of a new node that stands before the graph's own."""
        output = self.add(operator, *inputs, **attributes)
        node = NodeProto()
        node.CopyFrom(self.graph.node.pop())
        self.graph.node.insert(self._num_first(), node)
        return output

    def constant(self, value: np.ndarray) -> str:
        """The name of a new initializer."""
        name = self._new("constant")
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def integers(self, *values: int) -> str:
        """The name of an initializer of int64, [n]."""
        return self.constant(np.array(values, np.int64))

    def floating(self, value: str) -> str:
        """A value in float32."""
        return self.add("Cast", value, to=TensorProto.FLOAT)

    def reshape(self, value: str, *shape: int) -> str:
        """A value in another shape; 0 keeps an axis, -1 is the rest."""
        return self.add("Reshape", value, self.integers(*shape))

    def largest(self, value: str, axis: int) -> str:
        """The largest value along an axis, which goes."""
        if self.opset < FIRST_AXES_INPUT["ReduceMax"]:
            return self.add("ReduceMax", value, axes=[axis], keepdims=0)
        return self.add("ReduceMax", value, self.integers(axis), keepdims=0)

    def free(self, name: str) -> None:
        """Give the graph's value of that name another one, so that an output can have it."""
        if name not in self._names:
            return
        other = self._new(name)
        for graph in graphs_in(self.graph):
            for node in graph.node:
                replace(node.input, name, other)
                replace(node.output, name, other)
            infos: list[Any] = [*graph.value_info, *graph.output, *graph.initializer]
            for info in infos:
                if info.name == name:
                    info.name = other
        self._names.discard(name)

    def set_outputs(self, outputs: Iterable[tuple[str, str, list[str | int]]]) -> None:
        """Give the graph these outputs alone, float32: the value, its name, and the dims."""
        infos = []
        for value, name, dims in outputs:
            node = helper.make_node("Identity", [value], [name], name=self._new("output"))
            self.graph.node.append(node)
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
        del self.graph.output[:]
        self.graph.output.extend(infos)

    def _num_first(self) -> int:
        """The number of nodes that `add_first` put in before."""
        count = 0
        for node in self.graph.node:
            if not node.name.startswith(ADDED):
                break
            count += 1
        return count

    def _new(self, what: str) -> str:
        name = next(
            name
            for number in range(len(self._names) + 1)
            if (name := f"{ADDED}{what}_{number}") not in self._names
        )
        self._names.add(name)
        return name


def opset_of(model: ModelProto) -> int:
    """The version of ONNX's own operators that a graph is written in; 0 where it has none."""
    own = (each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    return max(own, default=0)


def names_in(graph: GraphProto) -> Iterator[str]:
    """Every name of a value, a weight or a node."""
    for each in graphs_in(graph):
        infos: list[Any] = [*each.input, *each.output, *each.initializer, *each.value_info]
        yield from (info.name for info in infos)
        for node in each.node:
            yield node.name
            yield from node.input
            yield from node.output


def inputs_of(model: ModelProto) -> list[ValueInfoProto]:
    """The inputs of a graph, without weights: older graphs list these too."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in weights]


def graphs_in(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph, and those inside of its nodes."""
    yield graph
    for node in graph.node:
        for inner in within(node):
            yield from graphs_in(inner)


def within(node: NodeProto) -> Iterator[GraphProto]:
    """Graphs that a node has as attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def replace(names: MutableSequence[str], old: str, new: str) -> None:
    """Put one name in the place of another."""
    for place, name in enumerate(names):
        if name == old:
            names[place] = new
