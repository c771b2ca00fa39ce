"""Faults of meaning, put in by hand, are found by the checks that an import itself makes.

Each row changes one thing in a right graph: what a wrong reading of a network would leave there.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper

from export.checks.traced_decoding import check_traced
from export.errors import ExportError
from export.graphs.traced.decoder import trace_traced
from models.networks.traced import TracedDecoder
from service.generation.decoders.decoder import OnnxDecoder
from tests.traced.networks import tiny_decoder

ATTENTION, EXPERTS = "GroupQueryAttention", "MoE"
CONVOLUTION, RECURRENCE = "CausalConvWithState", "LinearAttention"
Change = Callable[[onnx.ModelProto], None]


@cache
def traced(model_type: str) -> tuple[TracedDecoder, onnx.ModelProto]:
    """A network and its graph, which is right; not to be changed."""
    decoder = tiny_decoder(model_type)
    graph = trace_traced(decoder)
    check_traced(decoder, graph)
    return decoder, graph


def nodes(graph: onnx.ModelProto, operator: str) -> list[NodeProto]:
    found = [node for node in graph.graph.node if node.op_type == operator]
    assert found, operator
    return found


def set_attribute(node: NodeProto, name: str, value: float | None) -> None:
    kept = [each for each in node.attribute if each.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))


def attribute(node: NodeProto, name: str) -> float:
    return float(helper.get_node_attr_value(node, name))


def with_attribute(
    operator: str, name: str, change: Callable[[float], float | None], number: int = 0
) -> Change:
    """The attribute of the first such nodes that have it is another."""

    def put_in(graph: onnx.ModelProto) -> None:
        having = [
            node
            for node in nodes(graph, operator)
            if any(each.name == name for each in node.attribute)
        ]
        value = change(attribute(having[number], name))
        is_whole = value is not None and name in ("local_window_size", "k", "interleaved")
        set_attribute(having[number], name, int(value or 0) if is_whole else value)

    return put_in


def exchanged(operator: str, *places: int) -> Change:
    """The first two such nodes have each other's inputs."""

    def put_in(graph: onnx.ModelProto) -> None:
        first, second = nodes(graph, operator)[:2]
        for place in places:
            first.input[place], second.input[place] = second.input[place], first.input[place]

    return put_in


def without_input(operator: str, place: int) -> Change:
    def put_in(graph: onnx.ModelProto) -> None:
        nodes(graph, operator)[0].input[place] = ""

    return put_in


def windows_on_other_layers(graph: onnx.ModelProto) -> None:
    first, second = nodes(graph, ATTENTION)[:2]
    width = int(attribute(first, "local_window_size"))
    set_attribute(first, "local_window_size", None)
    set_attribute(second, "local_window_size", width)


def keys_for_values(graph: onnx.ModelProto) -> None:
    node = nodes(graph, ATTENTION)[0]
    node.input[1], node.input[2] = node.input[2], node.input[1]


def with_initializer(
    pick: Callable[[onnx.ModelProto], str], change: Callable[[np.ndarray], np.ndarray]
) -> Change:
    def put_in(graph: onnx.ModelProto) -> None:
        name = pick(graph)
        tensor = next(each for each in graph.graph.initializer if each.name == name)
        changed = change(numpy_helper.to_array(tensor)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(changed, name))

    return put_in


def input_of(operator: str, place: int) -> Callable[[onnx.ModelProto], str]:
    """The weight that a node reads there, also by nodes that give it another shape."""

    def pick(graph: onnx.ModelProto) -> str:
        weights = {each.name for each in graph.graph.initializer}
        makers = {output: node for node in graph.graph.node for output in node.output}
        name = nodes(graph, operator)[0].input[place]
        while name not in weights:
            name = makers[name].input[0]
        return name

    return pick


def frequencies(graph: onnx.ModelProto) -> str:
    return next(each.name for each in graph.graph.initializer if "inv_freq" in each.name)


def without_cap_of_logits(graph: onnx.ModelProto) -> None:
    (node,) = nodes(graph, "Tanh")
    node.op_type = "Identity"


def with_rule(rule: bytes) -> Change:
    """The first state is updated by another rule."""

    def put_in(graph: onnx.ModelProto) -> None:
        node = nodes(graph, RECURRENCE)[0]
        next(each for each in node.attribute if each.name == "update_rule").s = rule

    return put_in


def without_activation(graph: onnx.ModelProto) -> None:
    node = nodes(graph, CONVOLUTION)[0]
    next(each for each in node.attribute if each.name == "activation").s = b"none"


def with_decays_off(graph: onnx.ModelProto) -> None:
    """The first decays are 1 % too large."""
    node = nodes(graph, RECURRENCE)[0]
    factor = numpy_helper.from_array(np.array(1.01, np.float32), "factor")
    graph.graph.initializer.append(factor)
    place = list(graph.graph.node).index(node)
    graph.graph.node.insert(place, helper.make_node("Mul", [node.input[4], "factor"], ["decays"]))
    nodes(graph, RECURRENCE)[0].input[4] = "decays"


def shifted_by_one(weight: np.ndarray) -> np.ndarray:
    """The filter of a convolution sees one token further back."""
    return np.roll(weight, -1, axis=-1)


def gates_and_values_exchanged(weight: np.ndarray) -> np.ndarray:
    return weight.reshape(weight.shape[0], -1, 2, weight.shape[-1])[:, :, ::-1].reshape(
        weight.shape
    )


FAULTS: dict[str, tuple[str, Change]] = {
    "a window one wider": (
        "gemma2",
        with_attribute(ATTENTION, "local_window_size", lambda w: w + 1),
    ),
    "a window one narrower": (
        "gemma2",
        with_attribute(ATTENTION, "local_window_size", lambda w: w - 1),
    ),
    "no window": ("gemma2", with_attribute(ATTENTION, "local_window_size", lambda _: None)),
    "windows on the other layers": ("gemma2", windows_on_other_layers),
    "no cap on scores": ("gemma2", with_attribute(ATTENTION, "softcap", lambda _: None)),
    "a cap on scores 5 % off": ("gemma2", with_attribute(ATTENTION, "softcap", lambda c: 1.05 * c)),
    "no cap on scores of the last layer": (
        "gemma2",
        with_attribute(ATTENTION, "softcap", lambda _: None, number=1),
    ),
    "a scale 1 % off": ("gemma2", with_attribute(ATTENTION, "scale", lambda s: 1.01 * s)),
    "no cap on logits": ("gemma2", without_cap_of_logits),
    "no epsilon": ("gemma2", with_attribute("RMSNormalization", "epsilon", lambda _: 0.0)),
    "an epsilon a hundred times too large": (
        "gemma2",
        with_attribute("RMSNormalization", "epsilon", lambda e: 100 * e),
    ),
    "a norm's weights less one": (
        "gemma2",
        with_initializer(input_of("RMSNormalization", 1), lambda weight: weight - 1),
    ),
    "positions 1 % off": ("gemma2", with_initializer(frequencies, lambda each: 1.01 * each)),
    "caches of two layers exchanged": ("gemma2", exchanged(ATTENTION, 3, 4)),
    "keys in place of values": ("gemma2", keys_for_values),
    "no sinks": ("gpt_oss", without_input(ATTENTION, 11)),
    "sinks of another layer": ("gpt_oss", exchanged(ATTENTION, 11)),
    "another factor in the gate": (
        "gpt_oss",
        with_attribute(EXPERTS, "activation_alpha", lambda _: 1.0),
    ),
    "no limit in the gate": ("gpt_oss", with_attribute(EXPERTS, "swiglu_limit", lambda _: None)),
    "nothing added to the gate": (
        "gpt_oss",
        with_attribute(EXPERTS, "activation_beta", lambda _: 0.0),
    ),
    "an expert fewer": ("gpt_oss", with_attribute(EXPERTS, "k", lambda k: k - 1)),
    "gates and values exchanged": (
        "gpt_oss",
        with_initializer(input_of(EXPERTS, 2), gates_and_values_exchanged),
    ),
    "no biases of experts": ("gpt_oss", without_input(EXPERTS, 3)),
    "experts of another layer": ("gpt_oss", exchanged(EXPERTS, 2)),
    "a convolution that starts anew": ("lfm2", without_input(CONVOLUTION, 3)),
    "a state that starts anew": ("qwen3_5_text", without_input(RECURRENCE, 3)),
    "a convolution shifted by one": (
        "lfm2",
        with_initializer(input_of(CONVOLUTION, 1), shifted_by_one),
    ),
    "decays 1 % off": ("qwen3_5_text", with_decays_off),
    "queries of a state 1 % off": (
        "qwen3_5_text",
        with_attribute(RECURRENCE, "scale", lambda s: 1.01 * s),
    ),
    "nothing taken back": ("qwen3_5_text", with_rule(b"gated")),
    "states that never decay": ("qwen3_5_text", with_rule(b"delta")),
    "no activation of a convolution": ("qwen3_5_text", without_activation),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_is_put_in_is_found(name: str) -> None:
    model_type, put_in = FAULTS[name]
    decoder, right = traced(model_type)
    graph = onnx.ModelProto()
    graph.CopyFrom(right)
    put_in(graph)
    with pytest.raises(ExportError, match="differs from transformers"):
        check_traced(decoder, graph)


def test_a_slot_whose_states_are_not_zeroed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's part: a row that begins in a used slot would go on from another's state."""
    decoder, graph = traced("qwen3_5_text")

    def left_as_they_are(self: OnnxDecoder, *_: object) -> None:
        self._state_lengths[:] = 0

    monkeypatch.setattr(OnnxDecoder, "_begin_states", left_as_they_are)
    with pytest.raises(ExportError, match="differs from transformers"):
        check_traced(decoder, graph)
