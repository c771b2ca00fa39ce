"""Decoders of other programs as graphs over slots: their inputs and outputs alone are changed.

Two kinds of graphs are told by what reads their caches. In optimum's form a layer joins the past
`[B, H, P, D]` with new keys and values, and gives `[B, H, P + S, D]`. In the form of
onnxruntime-genai, and of many graphs of onnx-community, GroupQueryAttention extends a buffer
in place, as in the graphs of `export/graphs/cached_decoder.py`, whose inputs and outputs both get:

    joined  Each run reads the past of its rows right-aligned out of their slots, with a mask to
            match, and writes the new tokens into the slots. Right-aligned, since networks
            that look back by a number of places count these from the end.
    shared  The operator's lengths are the graph's inputs, instead of what the mask amounts to.

Both give the logits of chosen tokens alone, gathered before the last product where that is found.
Reads no weights. `decoders_parity.py` compares what a graph computes before and after.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S new tokens, P places of the past

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from export.adopted.decoders_ends import (
    IDS,
    LENGTHS,
    LOGITS,
    MASK,
    POSITIONS,
    TOTAL,
    Ends,
)
from export.adopted.editing import opset_of
from export.adopted.edits import LAST, Edit, keep_needed, reads, rename, surround
from export.errors import ExportError
from service.generation.decoders.decoder import POSITIONS as WANTED
from service.generation.decoders.shape import cache_names

OPERATOR = "GroupQueryAttention"
PAST_KEY, LENGTHS_AT, TOTAL_AT = 3, 5, 6  # places among the operator's inputs
INNER = ".inner"  # ends the names that the graph's own nodes have for its ends
FIRST_OPSET = 11  # the first with ScatterND and Range
# Operators between the last product and the logits, and products, with the place of what is known.
PASSED = frozenset(("Cast", "Div", "Mul", "Tanh", "Add", "Identity"))
PRODUCTS = frozenset(
    ("MatMul", "MatMulNBits", "MatMulBnb4", "MatMulInteger", "MatMulIntegerToFloat")
)


def over_slots(model: ModelProto, ends: Ends) -> None:
    """Change a graph, in place, so that it reads and extends slots.

    Raises `ExportError` for a graph whose caches are read in neither form.
    """
    graph = model.graph
    if opset_of(model) < FIRST_OPSET:
        raise ExportError(
            f"the graph has operators of version {opset_of(model)}, expected {FIRST_OPSET} or later"
        )
    before, after = Edit(model, "slots.before"), Edit(model, "slots.after")
    _rename_ends(graph, ends)
    _fill_in(before, ends)
    sharing = _sharing(graph, ends)
    if sharing:
        _take_lengths(sharing)
        _mask_of_slots(before, ends)
    else:
        _read_slots(before, ends)
        _write_slots(after, ends)
    before_product = Edit(model, "slots.product")
    product = _wanted_logits(graph, before_product, after)
    nodes = list(graph.node)
    place = len(nodes) if product is None else nodes.index(product)
    del graph.node[:]
    graph.node.extend([*nodes[:place], *before_product.nodes, *nodes[place:]])
    surround(graph, before.nodes, after.nodes)
    for edit in (before, before_product, after):
        graph.initializer.extend(edit.constants.values())
    _state_ends(graph, ends)
    keep_needed(graph)


def take_one_row(model: ModelProto) -> None:
    """Let a graph over slots say that a run has one row: the server then runs rows one by one."""
    for value in model.graph.input:
        if value.name in (IDS, POSITIONS):
            value.type.tensor_type.shape.dim[0].dim_value = 1


def _inner(name: str) -> str:
    return name + INNER


def _rename_ends(graph: GraphProto, ends: Ends) -> None:
    """Give names of their own to the ends as the graph's nodes read and write them."""
    names = {value.name: _inner(name) for name, value in ends.tensors.items()}
    rename(graph.node, names | {name: _inner(name) for name in ends.constants})


def _fill_in(edit: Edit, ends: Ends) -> None:
    """Inputs that the server gives as they are, and those that never vary."""
    for name in (IDS, POSITIONS):
        if name in ends.tensors:
            edit.node("Cast", name, output=_inner(name), to=ends.dtype_of(name))
    for name, value in ends.constants.items():
        edit.node("Identity", edit.constant(value, value.dtype.type), output=_inner(name))


def _sharing(graph: GraphProto, ends: Ends) -> list[NodeProto]:
    """Nodes that extend the caches in place; none in the joined form. Raises `ExportError`."""
    keys = {_inner(past) for past, _ in cache_names(ends.num_layers) if past.endswith(".key")}
    sharing = [
        node
        for node in graph.node
        if node.op_type == OPERATOR and len(node.input) > TOTAL_AT and node.input[PAST_KEY] in keys
    ]
    if sharing and len(sharing) != ends.num_layers:
        raise ExportError(
            f"{len(sharing)} of {ends.num_layers} layers extend their cache by {OPERATOR}, and the "
            "others in another way"
        )
    return sharing


def _take_lengths(sharing: list[NodeProto]) -> None:
    for node in sharing:
        node.input[LENGTHS_AT], node.input[TOTAL_AT] = LENGTHS, TOTAL
        for side in (node.input, node.output):
            for place, name in enumerate(side):
                if name.startswith(("past_key_values.", "present.")):
                    side[place] = name.removesuffix(INNER)


def _mask_of_slots(edit: Edit, ends: Ends) -> None:
    """The mask for the nodes that read it: 1 for each of a row's tokens, first in its slot."""
    if MASK in ends.tensors:
        last_B1 = edit.unsqueeze(edit.integer(LENGTHS), 1)
        places_T = edit.up_to(edit.integer(TOTAL))
        is_beyond = edit.node("Less", last_B1, places_T)
        _cast_mask(edit, edit.node("Not", is_beyond), ends)


def _cast_mask(edit: Edit, mask: str, ends: Ends) -> None:
    edit.node("Cast", mask, output=_inner(MASK), to=ends.dtype_of(MASK))


def _read_slots(edit: Edit, ends: Ends) -> None:
    """The past of all layers, right-aligned: P places, as many as the longest past has tokens."""
    past_B = edit.node("Gather", POSITIONS, edit.constant(0), axis=1)
    longest_1 = edit.node("ReduceMax", past_B, output=_LONGEST, keepdims=1)
    longest = edit.node("Reshape", longest_1, edit.constant([]))
    past_B1 = edit.unsqueeze(past_B, 1)
    shift_B1 = edit.node("Sub", longest_1, past_B1)
    places_P, places_S = edit.up_to(longest), edit.up_to(edit.size(IDS, 1))
    is_before = edit.node("Less", places_P, shift_B1)
    if MASK in ends.tensors:
        end_B1 = edit.node("Add", edit.unsqueeze(edit.integer(LENGTHS), 1), edit.constant(1))
        num_new_B1 = edit.node("Sub", end_B1, past_B1)
        is_new = edit.node("Less", places_S, num_new_B1)
        mask = edit.node("Concat", edit.node("Not", is_before), is_new, axis=1)
        _cast_mask(edit, mask, ends)
    behind = edit.node("Sub", places_P, shift_B1)
    source_BP = edit.node("Where", is_before, edit.constant(0), behind)
    indices = _indices(edit, source_BP, ends, _READ)
    for past, _ in cache_names(ends.num_layers):
        edit.node("GatherND", past, indices, output=_inner(past))
    _indices(edit, edit.node("Add", past_B1, places_S), ends, _WRITTEN)


_LONGEST, _READ, _WRITTEN = "slots.longest", "slots.read", "slots.written"


def _indices(edit: Edit, places: str, ends: Ends, name: str) -> str:
    """Indices [B, H, places, 3] of row, head and place, for places [B, number]."""
    size_1 = [
        edit.as_vector(edit.size(places, 0)),
        edit.constant([ends.num_heads]),
        edit.as_vector(edit.size(places, 1)),
        edit.constant([1]),
    ]
    shape = edit.node("Concat", *size_1, axis=0)
    parts = (
        edit.unsqueeze(edit.up_to(edit.size(places, 0)), 1, 2, 3),
        edit.constant(np.arange(ends.num_heads).reshape(1, -1, 1, 1)),
        edit.unsqueeze(places, 1, 3),
    )
    spread = [edit.node("Expand", part, shape) for part in parts]
    return edit.node("Concat", *spread, output=name, axis=3)


def _write_slots(edit: Edit, ends: Ends) -> None:
    """New keys and values go into the slots; what else a slot has stays as it is."""
    for past, present in cache_names(ends.num_layers):
        new = edit.node(
            "Slice", _inner(present), _LONGEST, edit.constant([LAST]), edit.constant([2])
        )
        edit.node("ScatterND", past, _WRITTEN, new, output=present)


def _wanted_logits(graph: GraphProto, before: Edit, after: Edit) -> NodeProto | None:
    """Logits of the chosen tokens; the last product, where it computes these alone."""
    product = _last_product(graph)
    if product is not None:
        product.input[0] = _gathered(before, product.input[0])
        rows = _inner(LOGITS)
    else:
        rows = _gathered(after, _inner(LOGITS))
    after.node("Cast", rows, output=LOGITS, to=TensorProto.FLOAT)
    return product


def _gathered(edit: Edit, values_BSD: str) -> str:
    flat = edit.node("Flatten", values_BSD, axis=2)
    return edit.node("Gather", flat, WANTED, axis=0)


def _last_product(graph: GraphProto) -> NodeProto | None:
    """The product that makes logits, if nothing but numbers and scales is between it and them."""
    makers = {output: node for node in graph.node for output in node.output}
    num_uses: dict[str, int] = {}
    for node in graph.node:
        for name in reads(node):
            num_uses[name] = num_uses.get(name, 0) + 1

    def behind(value: str, most_uses: int) -> Iterator[NodeProto]:
        node = makers.get(value)
        if node is None or num_uses.get(value, 0) > most_uses:
            return
        if node.op_type in PRODUCTS:
            yield node
        elif node.op_type in PASSED:
            for name in node.input:
                yield from behind(name, 1)

    products = [*behind(_inner(LOGITS), 0)]
    return products[0] if len(products) == 1 else None


@dataclass(frozen=True, slots=True)
class _End:
    """Type and dims of an input or output."""

    dtype: int
    dims: tuple[str | int, ...]

    def named(self, name: str) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, self.dtype, self.dims)


def _state_ends(graph: GraphProto, ends: Ends) -> None:
    per_token = _End(TensorProto.INT64, ("batch", "sequence"))
    inputs = {
        IDS: per_token,
        POSITIONS: per_token,
        LENGTHS: _End(TensorProto.INT32, ("batch",)),
        TOTAL: _End(TensorProto.INT32, ()),
        WANTED: _End(TensorProto.INT64, ("positions",)),
    }
    outputs = {LOGITS: _End(TensorProto.FLOAT, ("positions", ends.vocab_size))}
    cache = _End(ends.cache_type, ("batch", ends.num_heads, "cache", ends.head_size))
    pasts, presents = zip(*cache_names(ends.num_layers), strict=True)
    del graph.input[:], graph.output[:], graph.value_info[:]
    graph.input.extend(end.named(name) for name, end in inputs.items())
    graph.input.extend(cache.named(name) for name in pasts)
    graph.output.extend(end.named(name) for name, end in outputs.items())
    graph.output.extend(cache.named(name) for name in presents)
