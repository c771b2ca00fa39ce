"""Graphs as files: checked, and written with their weights beside them where they are large.

ONNX's format is a protobuf message, which holds 2 GiB. What is larger, and graphs that share their
weights, have them in two files beside the graphs, in ONNX's format for external data:

    model.onnx.weights  matrices that products alone read: a session packs them while it loads,
                        and the file is mapped for no longer
    model.onnx.tables   all other large tensors: sessions read them as they are, for as long as
                        they live, so the server reads the file once, for all sessions

No function here makes one message of a graph that may be larger. Knows nothing of what a graph
computes.
"""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Self

import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper
from onnx.external_data_helper import uses_external_data

from service.runtime.shared_weights import TABLES_SUFFIX, WEIGHTS_SUFFIX

MAX_MESSAGE_BYTES = 2**31 - 2**20  # protobuf's limit, and room for the nodes
LARGE_BYTES = 2**16  # of a tensor that goes into a file beside its graph
ALIGNMENT = 2**12  # a page, so that a tensor can be mapped
PACKED = {"MatMul": 1, "Gemm": 1, "MatMulIntegerToFloat": 1, "MatMulNBits": 1}  # input by operator


def num_bytes(model: ModelProto) -> int:
    """The size of a graph's weights, which are nearly all of it."""
    return sum(map(_size_of, model.graph.initializer))


def num_bytes_inside(model: ModelProto) -> int:
    """The size of the weights that are in the graph itself, and not in files that it names."""
    inside = (each for each in model.graph.initializer if not uses_external_data(each))
    return sum(map(_size_of, inside))


def bytes_on_disk(path: Path) -> int:
    """The size of a graph's file, and of those with its weights beside it."""
    suffixes = (path.suffix, WEIGHTS_SUFFIX, TABLES_SUFFIX)
    files = [path.with_suffix(suffix) for suffix in suffixes]
    return sum(file.stat().st_size for file in files if file.is_file())


def check(model: ModelProto) -> None:
    """Raise an error of onnx for a graph that is against the format.

    A graph that no protobuf message holds cannot be checked in memory.
    """
    if num_bytes(model) <= MAX_MESSAGE_BYTES:
        onnx.checker.check_model(model)


def copy_of(model: ModelProto) -> ModelProto:
    """A copy; protobuf's own copies all of it as one message."""
    copy = _without_weights(model)
    for tensor in model.graph.initializer:
        copy.graph.initializer.add().CopyFrom(tensor)
    return copy


def save(model: ModelProto, path: Path, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Write a graph, with its weights in files beside it where it is larger than a message."""
    if num_bytes_inside(model) <= max_bytes:
        onnx.save(model, path)
    else:
        save_sharing({path: model}, path)


def save_sharing(
    graphs: Mapping[Path, ModelProto], beside: Path, large_bytes: int = LARGE_BYTES
) -> None:
    """Write graphs of one folder whose large tensors are in files named after `beside`.

    Tensors with the same bytes are there once, whatever they are called.
    """
    with (
        _WeightsFile.opened(beside.with_suffix(WEIGHTS_SUFFIX)) as weights,
        _WeightsFile.opened(beside.with_suffix(TABLES_SUFFIX)) as tables,
    ):
        for path, model in graphs.items():
            written, packed = _without_weights(model), _packed_only(model.graph)
            for tensor in model.graph.initializer:
                file = weights if tensor.name in packed else tables
                if _size_of(tensor) < large_bytes:
                    written.graph.initializer.add().CopyFrom(tensor)
                else:
                    file.refer(written.graph.initializer.add(), tensor)
            onnx.save(written, path)


class _WeightsFile:
    """A file of tensors, each content once; there is none where nothing was written."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._offsets: dict[bytes, int] = {}  # by the hash of a tensor's bytes

    @classmethod
    def opened(cls, path: Path) -> Self:
        return cls(path, path.open("wb"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self._offsets:
            self._path.unlink()

    def refer(self, reference: TensorProto, tensor: TensorProto) -> None:
        """Make `reference` the tensor, with its bytes in this file."""
        content = tensor.raw_data
        assert content, "large tensors come from arrays, which have their bytes as they are"
        offset = self._written(content)
        reference.name, reference.data_type = tensor.name, tensor.data_type
        reference.dims.extend(tensor.dims)
        reference.data_location = TensorProto.EXTERNAL
        values = {"location": self._path.name, "offset": offset, "length": len(content)}
        for key, value in values.items():
            reference.external_data.add(key=key, value=str(value))

    def _written(self, content: bytes) -> int:
        digest = hashlib.sha256(content).digest()
        if digest not in self._offsets:
            self._file.seek(-self._file.tell() % ALIGNMENT, 1)
            self._offsets[digest] = self._file.tell()
            self._file.write(content)
        return self._offsets[digest]


def _without_weights(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _assign(copy, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _assign(copy.graph, field.name, value)
    return copy


def _assign(message: ModelProto | GraphProto, name: str, value: object) -> None:
    if isinstance(value, str | int):
        setattr(message, name, value)
    else:
        getattr(message, name).extend(value)


def _packed_only(graph: GraphProto) -> set[str]:
    """The tensors that products read, and nothing else."""
    packed: set[str] = set()
    others: set[str] = set()
    for node in graph.node:
        for place, name in enumerate(node.input):
            (packed if PACKED.get(node.op_type) == place else others).add(name)
    return packed - others


def _size_of(tensor: TensorProto) -> int:
    if tensor.data_location == TensorProto.EXTERNAL:
        return 0  # of a graph whose files are kept as they are
    return math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
