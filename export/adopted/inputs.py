"""The inputs of an encoder's graph: those that the server gives, and those made of them.

Imports no PyTorch.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from export.adopted.editing import ADDED, Editor, graphs_in, inputs_of, replace
from export.errors import ExportError

IDS, MASK, TYPES, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
OF_TEXTS = (IDS, MASK, TYPES)
WHOLE = (TensorProto.INT64, TensorProto.INT32)


def given_by_the_server(model: ModelProto, first_position: int = 0) -> list[str]:
    """Make a graph of texts take the server's inputs alone, int64 [B, S], and return their names.

    `first_position` is that of a text's first token. Raises `ExportError` for an input that is not
    known, or of a fixed length.
    """
    graph = model.graph
    inputs = inputs_of(model)
    names = [each.name for each in inputs]
    unknown = [name for name in names if name not in (*OF_TEXTS, POSITIONS)]
    if unknown or IDS not in names:
        strange = f"input {unknown[0]!r}" if unknown else f"inputs {names}"
        raise ExportError(
            f"the graph takes the {strange}, and the server gives a text as {', '.join(OF_TEXTS)}"
        )
    for each in inputs:
        _check(each)
    editor = Editor(model)
    for each in inputs:
        is_made = each.name == POSITIONS
        if not is_made and each.type.tensor_type.elem_type == TensorProto.INT32:
            _cast(editor, each)
    if POSITIONS in names:
        _make_positions(editor, names, first_position)
    kept = [each for each in inputs if each.name != POSITIONS]
    copies = [ValueInfoProto.FromString(each.SerializeToString()) for each in kept]
    del graph.input[:]
    graph.input.extend(copies)
    return [each.name for each in copies]


def has_one_row(model: ModelProto) -> bool:
    """Whether a graph states that it takes one row at a time."""
    return any(
        info.type.tensor_type.shape.dim and info.type.tensor_type.shape.dim[0].dim_value == 1
        for info in inputs_of(model)
    )


def positions_of(mask: np.ndarray, first_position: int) -> np.ndarray:
    """The positions of right-padded rows, int64 [B, S] as their mask, as the graph makes them."""
    positions: np.ndarray = np.maximum(mask.cumsum(axis=1) - 1, 0) + first_position
    return positions


def originals(
    model: ModelProto, batch: Mapping[str, np.ndarray], first_position: int
) -> dict[str, np.ndarray]:
    """The inputs of a graph as it was, from those that the server gives."""
    given = {**batch, POSITIONS: positions_of(batch[MASK], first_position)}
    return {
        info.name: given[info.name].astype(
            helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        )
        for info in inputs_of(model)
    }


def dims_of(info: ValueInfoProto) -> Sequence[int | None]:
    """The axes of a tensor; None for one of any size."""
    return [max(0, dim.dim_value) or None for dim in info.type.tensor_type.shape.dim]


def _check(info: ValueInfoProto) -> None:
    """Raise `ExportError` for an input that is not of whole numbers, [B, S] with any S."""
    dims = dims_of(info)
    if info.type.tensor_type.elem_type not in WHOLE or len(dims) != 2:
        kind = TensorProto.DataType.Name(info.type.tensor_type.elem_type)
        raise ExportError(
            f"the graph's input {info.name!r} is {kind} of {len(dims)} axes, and the server gives "
            "whole numbers of 2: texts, and tokens"
        )
    if dims[1] is not None or dims[0] not in (None, 1):
        which, size = ("tokens", dims[1]) if dims[1] is not None else ("texts", dims[0])
        raise ExportError(
            f"the graph's input {info.name!r} takes {size} {which}, no more and no fewer: export "
            "it again with axes of any size"
        )


def _cast(editor: Editor, info: ValueInfoProto) -> None:
    """Make an input int64, which the graph goes on to read as int32."""
    name = info.name
    cast = editor.add_first("Cast", name, to=TensorProto.INT32)
    _read_instead(editor, name, cast)
    info.type.tensor_type.elem_type = TensorProto.INT64


def _make_positions(editor: Editor, names: Sequence[str], first_position: int) -> None:
    """Positions of the mask, or of all tokens where the graph takes none."""
    kind = next(
        info.type.tensor_type.elem_type for info in editor.graph.input if info.name == POSITIONS
    )
    mask = MASK
    if MASK not in names:
        ones = editor.add_first("Equal", IDS, IDS)
        mask = editor.add_first("Cast", ones, to=TensorProto.INT64)
    counts = editor.add_first("CumSum", mask, editor.constant(np.array(1, np.int64)))
    from_one = editor.add_first("Sub", counts, editor.integers(1))
    as_float = editor.add_first("Cast", from_one, to=TensorProto.FLOAT)
    positive = editor.add_first("Relu", as_float)
    whole = editor.add_first("Cast", positive, to=TensorProto.INT64)
    positions = editor.add_first("Add", whole, editor.integers(first_position))
    if kind == TensorProto.INT32:
        positions = editor.add_first("Cast", positions, to=TensorProto.INT32)
    _read_instead(editor, POSITIONS, positions)


def _read_instead(editor: Editor, name: str, other: str) -> None:
    """Let every node but those that were added read another value."""
    for graph in graphs_in(editor.graph):
        for node in graph.node:
            if not node.name.startswith(ADDED):
                replace(node.input, name, other)
