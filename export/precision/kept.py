"""A graph whose products have the numbers that a folder stores, with no further rounding.

The float weights of a product [K, N] are compared with those that the stored numbers stand for, row
by row of N, bit by bit. So weights that were joined, split or put in another order of layers are
found, and those that were changed (an adapter was merged, a factor folded in) are not and stay
float. Products that are joined and have not the same form are several nodes and a Concat.

    x -> Gather(order) where inputs were sorted by their groups
    MatMulNBits(x, codes, scales, zeros) [+ MatMul(sums of groups of x, offsets)]
    MatMulBnb4(x, codes, scales)
    MatMulIntegerToFloat of rows, as per_token.py has it
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: K inputs, N outputs of a product, B blocks

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.graphs.tensors import array_of
from export.precision.blockwise import (
    INT8_ACTIVATIONS,
    MICROSOFT,
    is_product,
    with_products_as_matmul,
)
from export.precision.per_token import SHARED, product_of_rows, round_rows
from models.checkpoints.rounded.kept import Array, Kept, digest_of

FLOAT_WEIGHTS = "float"  # weights of products that no stored numbers are known of
LAST_AXIS = "kept.last_axis"
FORMS = "kept"  # the graph's property that has the note


@dataclass(frozen=True, slots=True)
class _Segment:
    """Outputs of a product that follow one another: of stored weights, or float where None."""

    start: int
    stop: int
    kept: Kept | None


def forms_of(model: onnx.ModelProto) -> dict[str, int]:
    """Number of weights of a graph's products by the form that they are kept in."""
    noted = next((prop.value for prop in model.metadata_props if prop.key == FORMS), "{}")
    forms: dict[str, int] = json.loads(noted)
    return forms


def keep_stored(
    model: onnx.ModelProto, weights: Sequence[Kept], accuracy_level: int = INT8_ACTIVATIONS
) -> onnx.ModelProto:
    """A copy with stored numbers in place of floats, and a note for `forms_of`.

    `accuracy_level` is that of MatMulNBits: 4 computes with activations of 8 bits, 0 with floats,
    which takes 2 to 4 times as long with 4 bits and 40 times with 8.
    """
    copied = with_products_as_matmul(model)
    graph = copied.graph
    floats = {tensor.name: tensor for tensor in graph.initializer}
    first_rows = _by_first_rows(weights)
    writer, forms = _Writer(accuracy_level), Counter[str]()
    for node in graph.node:
        if is_product(node, floats):
            matrix_NK = np.ascontiguousarray(array_of(floats[node.input[1]]).T)
            segments = list(_segments(matrix_NK, first_rows))
            forms.update(FLOAT_WEIGHTS if s.kept is None else s.kept.title for s in segments)
            if any(segment.kept for segment in segments):
                writer.write_product(node, matrix_NK, segments)
                continue
        if node.op_type == "Gather" and node.input[0] in floats:
            table = array_of(floats[node.input[0]])
            kept = _whole(table, first_rows)
            if kept is not None and _is_readable(kept):
                writer.write_lookup(node, kept)
                continue
        writer.nodes.append(node)
    read = {name for node in writer.nodes for name in node.input}
    kept_tensors = [t for t in (*graph.initializer, *writer.constants.values()) if t.name in read]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(writer.nodes)
    graph.initializer.extend(kept_tensors)
    if MICROSOFT not in {opset.domain for opset in copied.opset_import}:
        copied.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    helper.set_model_props(copied, {FORMS: json.dumps(dict(sorted(forms.items())))})
    return copied


def float_products(model: onnx.ModelProto, weights: Sequence[Kept]) -> frozenset[int]:
    """Places, among the products of a graph in float32, of those that the folder left in float.

    None where no product has stored numbers, as their weights were changed since.
    """
    graph, first_rows = with_products_as_matmul(model).graph, _by_first_rows(weights)
    floats = {tensor.name: tensor for tensor in graph.initializer}
    products = [node for node in graph.node if is_product(node, floats)]
    left = set()
    for place, node in enumerate(products):
        matrix_NK = np.ascontiguousarray(array_of(floats[node.input[1]]).T)
        if not any(segment.kept for segment in _segments(matrix_NK, first_rows)):
            left.add(place)
    return frozenset(left if len(left) < len(products) else ())


def _by_first_rows(weights: Sequence[Kept]) -> dict[bytes, list[Kept]]:
    first_rows: dict[bytes, list[Kept]] = {}
    for weight in weights:
        first_rows.setdefault(weight.first, []).append(weight)
    return first_rows


def _segments(matrix_NK: Array, first_rows: dict[bytes, list[Kept]]) -> Iterator[_Segment]:
    """All rows of a product, those of stored weights apart, neighbours of one form joined."""
    found: list[_Segment] = []
    row = 0
    while row < len(matrix_NK):
        kept = _beginning_at(matrix_NK, row, first_rows)
        stop = row + (kept.shape[0] if kept else 1)
        if kept is None and found and found[-1].kept is None:
            found[-1] = replace(found[-1], stop=stop)
        else:
            found.append(_Segment(row, stop, kept))
        row = stop
    yield from found


def _beginning_at(matrix_NK: Array, row: int, first_rows: dict[bytes, list[Kept]]) -> Kept | None:
    for kept in first_rows.get(digest_of(matrix_NK[row]), ()):
        rows_NK = matrix_NK[row : row + kept.shape[0]]
        if rows_NK.shape == kept.shape and digest_of(rows_NK) == kept.digest:
            return kept
    return None


def _whole(table: Array, first_rows: dict[bytes, list[Kept]]) -> Kept | None:
    if table.ndim != 2 or table.dtype != np.float32:
        return None
    kept = _beginning_at(table, 0, first_rows)
    return kept if kept is not None and kept.shape == table.shape else None


def _is_readable(kept: Kept) -> bool:
    """Whether GatherBlockQuantized can read rows of it."""
    is_plain = kept.kept_as == "blocks" and kept.offsets_NG is None and kept.order_K is None
    return is_plain and kept.shape[1] % kept.block_size == 0


def _form(segment: _Segment) -> tuple[Any, ...]:
    """Properties that segments of one node have in common."""
    kept = segment.kept
    if kept is None:
        return (segment.start,)
    order = None if kept.order_K is None else kept.order_K.tobytes()
    group_size = 0 if kept.offsets_NG is None else kept.group_size
    return kept.kept_as, kept.bits, kept.block_size, group_size, kept.quant_type, order


def _joined(parts: Sequence[Kept]) -> Kept:
    """Weights of one form, with the outputs of one behind those of the other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    zeros = None
    if any(part.zeros_NB is not None for part in parts):
        middle = 1 << first.bits - 1
        each = (
            np.full(part.scales.shape, middle, np.uint8) if part.zeros_NB is None else part.zeros_NB
            for part in parts
        )
        zeros = np.concatenate(list(each))
    offsets = [part.offsets_NG for part in parts if part.offsets_NG is not None]
    return replace(
        first,
        shape=(sum(part.shape[0] for part in parts), first.shape[1]),
        codes=np.concatenate([part.codes for part in parts]),
        scales=np.concatenate([part.scales for part in parts]),
        zeros_NB=zeros,
        offsets_NG=np.concatenate(offsets) if offsets else None,
    )


@dataclass(slots=True)
class _Writer:
    """Nodes and constants of a graph; what several products read of an activation is made once."""

    accuracy_level: int
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, TensorProto] = field(default_factory=dict)
    _made: dict[tuple[str, ...], str] = field(default_factory=dict)

    def write_product(self, node: NodeProto, matrix_NK: Array, segments: list[_Segment]) -> None:
        """The nodes that give what a float product gives."""
        groups = [list(each) for _, each in groupby(segments, _form)]
        if len(groups) == 1:
            self._write_part(node.input[0], node.output[0], node.name, matrix_NK, groups[0])
            return
        outputs = [f"{node.output[0]}.part{index}" for index in range(len(groups))]
        for index, (output, group) in enumerate(zip(outputs, groups, strict=True)):
            name = f"{node.name}.part{index}"
            self._write_part(node.input[0], output, name, matrix_NK, group)
        self._node("Concat", outputs, node.output[0], name=node.name, axis=-1)

    def _write_part(
        self, activation: str, output: str, name: str, matrix_NK: Array, group: list[_Segment]
    ) -> None:
        parts = [segment.kept for segment in group if segment.kept is not None]
        if not parts:
            rows_KN = np.ascontiguousarray(matrix_NK[group[0].start : group[-1].stop].T)
            weights = self._constant(f"{name}.weights", rows_KN)
            self._node("MatMul", [activation, weights], output, name=name)
            return
        kept = _joined(parts)
        if kept.order_K is not None:
            activation = self._sorted(activation, kept.order_K)
        writers = {"blocks": self._blocks, "table": self._table, "rows": self._rows}
        writers[kept.kept_as](activation, output, name, kept)

    def _blocks(self, activation: str, output: str, name: str, kept: Kept) -> None:
        product = output if kept.offsets_NG is None else f"{output}.product"
        self._node(
            "MatMulNBits",
            [activation, *self._numbers(name, kept)],
            product,
            name=name,
            domain=MICROSOFT,
            K=kept.shape[1],
            N=kept.shape[0],
            bits=kept.bits,
            block_size=kept.block_size,
            accuracy_level=self.accuracy_level,
        )
        if kept.offsets_NG is None:
            return
        sums = self._sums(activation, kept)
        offsets = self._constant(f"{name}.offsets", np.ascontiguousarray(kept.offsets_NG.T))
        added = self._node("MatMul", [sums, offsets], f"{output}.added")
        self._node("Add", [product, added], output)

    def _numbers(self, name: str, kept: Kept) -> list[str]:
        """Names of codes and scales, and of zero points where they are not the middle."""
        names = [
            self._constant(f"{name}.int{kept.bits}", kept.codes),
            self._constant(f"{name}.scales", kept.scales),
        ]
        if kept.zeros_NB is not None:
            zeros = kept.zeros_NB
            if kept.bits == 4:
                zeros = np.pad(zeros, ((0, 0), (0, zeros.shape[1] % 2)))
                zeros = zeros[:, 0::2] | zeros[:, 1::2] << 4
            names.append(self._constant(f"{name}.zeros", zeros))
        return names

    def _table(self, activation: str, output: str, name: str, kept: Kept) -> None:
        scales = kept.scales.ravel()
        names = [
            self._constant(f"{name}.codes", kept.codes),
            self._constant(f"{name}.scales", scales),
        ]
        self._node(
            "MatMulBnb4",
            [activation, *names],
            output,
            name=name,
            domain=MICROSOFT,
            K=kept.shape[1],
            N=kept.shape[0],
            block_size=kept.block_size,
            quant_type=kept.quant_type,
        )

    def _rows(self, activation: str, output: str, name: str, kept: Kept) -> None:
        for shared, value in SHARED.items():
            self._constant(shared, value)
        largest = f"{activation}.largest"
        if (activation, "rows") not in self._made:
            self._made[activation, "rows"] = largest
            self.nodes += round_rows(activation, largest)
        self._constant(f"{name}.int8", np.ascontiguousarray(kept.codes.T))
        self._constant(f"{name}.scale", kept.scales)
        like = helper.make_node("MatMul", [activation, name], [output], name)
        self.nodes += product_of_rows(like, name, largest)

    def _sorted(self, activation: str, order_K: Array) -> str:
        key = activation, "sorted", digest_of(order_K).hex()
        if key not in self._made:
            result = f"{activation}.sorted{len(self._made)}"
            order = self._constant(f"{result}.order", order_K)
            self._made[key] = self._node("Gather", [activation, order], result, axis=-1)
        return self._made[key]

    def _sums(self, activation: str, kept: Kept) -> str:
        """[.., G]: sums of the groups of an activation [.., K]."""
        size = kept.group_size
        key = activation, "sums", str(size)
        if key not in self._made:
            name = f"{activation}.groups{size}"
            axis = self._constant(LAST_AXIS, np.array([-1], np.int64))
            if size >= kept.shape[1]:
                self._made[key] = self._node("ReduceSum", [activation, axis], f"{name}.sums")
                return self._made[key]
            sizes = self._constant(
                f"{name}.sizes", np.array([kept.shape[1] // size, size], np.int64)
            )
            outer = self._node("Shape", [activation], f"{name}.outer", start=0, end=-1)
            shape = self._node("Concat", [outer, sizes], f"{name}.shape", axis=0)
            apart = self._node("Reshape", [activation, shape], f"{name}.apart")
            self._made[key] = self._node("ReduceSum", [apart, axis], f"{name}.sums", keepdims=0)
        return self._made[key]

    def write_lookup(self, node: NodeProto, kept: Kept) -> None:
        """The node that reads rows of a table as they are stored."""
        codes, *others = self._numbers(node.input[0], kept)
        rows = self._constant(f"{codes}.rows", kept.codes.reshape(kept.shape[0], -1))
        self._node(
            "GatherBlockQuantized",
            [rows, node.input[1], *others],
            node.output[0],
            name=node.name,
            domain=MICROSOFT,
            bits=kept.bits,
            block_size=kept.block_size,
            gather_axis=0,
            quantize_axis=1,
        )

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        self.constants.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _node(
        self,
        operator: str,
        inputs: Sequence[str],
        output: str,
        name: str = "",
        **attributes: Any,  # noqa: ANN401 - of an operator
    ) -> str:
        self.nodes.append(
            helper.make_node(operator, inputs, [output], name or output, **attributes)
        )
        return output
