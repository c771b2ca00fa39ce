"""Graphs of one operator that move memory, as the bytes of an ONNX model.

ONNX Runtime's Python interface copies whole tensors only. A graph that is bound to addresses copies
any range, on a device too. The server has no `onnx` package to write a graph with, and these need
the few fields below of its format (protocol buffers; field numbers of onnx.proto).
"""

from collections.abc import Sequence

IR_VERSION, OPSET = 8, 18  # of 2022: every operator here is as old
FLOAT, UINT8, INT64 = 1, 2, 7  # TensorProto.DataType
TENSOR_ATTRIBUTE = 4  # AttributeProto.AttributeType


def copies(count: int) -> bytes:
    """A graph that copies bytes: `from_0` to `to_0` and so on."""
    names = [(f"from_{index}", f"to_{index}") for index in range(count)]
    return _model(
        [_node("Identity", [source], [target]) for source, target in names],
        [_tensor(source, UINT8, [f"bytes_{i}"]) for i, (source, _) in enumerate(names)],
        [_tensor(target, UINT8, [f"bytes_{i}"]) for i, (_, target) in enumerate(names)],
    )


def zeros() -> bytes:
    """A graph that gives as many zero bytes, `zeros`, as `shape` says, int64 [1]."""
    zero = _number(1, 1) + _number(2, UINT8) + _bytes(9, b"\0")
    value = _bytes(1, b"value") + _bytes(5, zero) + _number(20, TENSOR_ATTRIBUTE)
    return _model(
        [_node("ConstantOfShape", ["shape"], ["zeros"], value)],
        [_tensor("shape", INT64, [1])],
        [_tensor("zeros", UINT8, ["bytes"])],
    )


def chosen_rows() -> bytes:
    """A graph that gives some rows, `chosen`, of `rows`, float32 [N, V], by `places`, int64."""
    return _model(
        [_node("Gather", ["rows", "places"], ["chosen"])],
        [_tensor("rows", FLOAT, ["rows", "values"]), _tensor("places", INT64, ["chosen"])],
        [_tensor("chosen", FLOAT, ["chosen", "values"])],
    )


def _model(nodes: Sequence[bytes], inputs: Sequence[bytes], outputs: Sequence[bytes]) -> bytes:
    graph = b"".join(
        [
            *(_bytes(1, node) for node in nodes),
            _bytes(2, b"memory"),
            *(_bytes(11, each) for each in inputs),
            *(_bytes(12, each) for each in outputs),
        ]
    )
    opset = _bytes(1, b"") + _number(2, OPSET)
    return _number(1, IR_VERSION) + _bytes(7, graph) + _bytes(8, opset)


def _node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], attribute: bytes = b""
) -> bytes:
    named = [
        *(_bytes(1, name.encode()) for name in inputs),
        *(_bytes(2, name.encode()) for name in outputs),
        _bytes(4, operator.encode()),
    ]
    return b"".join(named) + (_bytes(5, attribute) if attribute else b"")


def _tensor(name: str, element_type: int, dims: Sequence[int | str]) -> bytes:
    """An input or output; a dimension that varies has a name."""
    parts = [
        _bytes(1, _number(1, dim) if isinstance(dim, int) else _bytes(2, dim.encode()))
        for dim in dims
    ]
    tensor_type = _number(1, element_type) + _bytes(2, b"".join(parts))
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor_type))


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
