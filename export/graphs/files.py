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

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Self

import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper

from export.graphs.tensors import (
    bytes_of,
    file_of,
    filled,
    is_elsewhere,
    key_of,
    new_folder,
    size_of,
)
from service.contract.manifest import MODEL_FILENAME
from service.runtime.shared_weights import TABLES_SUFFIX, WEIGHTS_SUFFIX

MAX_MESSAGE_BYTES = 2**31 - 2**20  # protobuf's limit, and room for the nodes
MAX_EMBEDDED_BYTES = 2**28  # of a graph in one message, where its weights are made later
LARGE_BYTES = 2**16  # of a tensor that goes into a file beside its graph
ALIGNMENT = 2**12  # a page, so that a tensor can be mapped
PACKED = {"MatMul": 1, "Gemm": 1, "MatMulIntegerToFloat": 1, "MatMulNBits": 1}  # input by operator


def num_bytes(model: ModelProto) -> int:
    """The size of a graph's weights, which are nearly all of it."""
    return sum(map(size_of, model.graph.initializer))


def bytes_on_disk(path: Path) -> int:
    """The size of a graph's file, and of those with its weights beside it."""
    suffixes = (path.suffix, WEIGHTS_SUFFIX, TABLES_SUFFIX)
    files = [path.with_suffix(suffix) for suffix in suffixes]
    return sum(file.stat().st_size for file in files if file.is_file())


def check(model: ModelProto) -> None:
    """Raise an error of onnx for a graph that is against the format.

    A graph that no protobuf message holds cannot be checked in memory.
    """
    checked, num_embedded = without_weights(model), 0
    for tensor in model.graph.initializer:
        if tensor.external_data:  # its numbers are elsewhere: as an input it has a type and a shape
            dims = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            checked.graph.input.append(dims)
        else:
            checked.graph.initializer.add().CopyFrom(tensor)
            num_embedded += size_of(tensor)
    if num_embedded <= MAX_MESSAGE_BYTES:
        onnx.checker.check_model(checked)


def copy_of(model: ModelProto) -> ModelProto:
    """A copy; protobuf's own copies all of it as one message."""
    copy = without_weights(model)
    for tensor in model.graph.initializer:
        copy.graph.initializer.add().CopyFrom(tensor)
    return copy


def save(model: ModelProto, path: Path, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Write a graph, with its weights in files beside it where it is larger than a message.

    Where its weights are made later, they are beside it from `MAX_EMBEDDED_BYTES` on.
    """
    if any(map(is_elsewhere, model.graph.initializer)):
        max_bytes = min(max_bytes, MAX_EMBEDDED_BYTES)
    if num_bytes(model) > max_bytes:
        save_sharing({path: model}, path)
    else:
        onnx.save(_embedding(model), path)


def _embedding(model: ModelProto) -> ModelProto:
    if not any(map(is_elsewhere, model.graph.initializer)):
        return model
    whole = without_weights(model)
    whole.graph.initializer.extend(map(filled, model.graph.initializer))
    return whole


def settled(graphs: Sequence[ModelProto], max_bytes: int = MAX_EMBEDDED_BYTES) -> list[ModelProto]:
    """Graphs whose tensors have been made: in files that they share, or small graphs in memory.

    Sessions read these files, and `save` puts them into their place.
    """
    if not any(key_of(tensor) for graph in graphs for tensor in graph.graph.initializer):
        return list(graphs)
    if sum(map(num_bytes, graphs)) <= max_bytes:
        return [_embedding(graph) for graph in graphs]
    folder = new_folder()
    paths = [folder / f"{place}.onnx" for place in range(len(graphs))]
    save_sharing(dict(zip(paths, graphs, strict=True)), folder / MODEL_FILENAME)
    written = [onnx.load(path, load_external_data=False) for path in paths]
    for graph in written:
        _relocate(graph, lambda name: str(folder / name))
    return written


def path_for_session(model: ModelProto) -> Path | None:
    """A graph that refers to files, as a file beside them; None of a graph that does not."""
    files = _files_of([model])
    if not files:
        return None
    path = files.pop().with_name("session.onnx")
    referring = copy_of(model)
    _relocate(referring, lambda name: Path(name).name)
    onnx.save(referring, path)
    return path


def _files_of(graphs: Iterable[ModelProto]) -> set[Path]:
    tensors = (tensor for graph in graphs for tensor in graph.graph.initializer)
    return {file for file in map(file_of, tensors) if file is not None}


def _relocate(model: ModelProto, rename: Callable[[str], str]) -> None:
    for tensor in model.graph.initializer:
        for field in tensor.external_data:
            if field.key == "location":
                field.value = rename(field.value)


def save_sharing(
    graphs: Mapping[Path, ModelProto], beside: Path, large_bytes: int = LARGE_BYTES
) -> None:
    """Write graphs of one folder whose large tensors are in files named after `beside`.

    Tensors with the same bytes are there once, whatever they are called. Files that the graphs
    refer to already are those, and take their names.
    """
    files = _files_of(graphs.values())
    if (
        files
        and len({file.parent for file in files}) == 1
        and all(map(_is_written, graphs.values()))
    ):
        names = {str(file): _named_after(beside, file) for file in files}
        for linked, name in names.items():
            link_file(Path(linked), name)
        for path, model in graphs.items():
            referring = copy_of(model)
            _relocate(referring, lambda name: names[name].name)
            onnx.save(referring, path)
        return
    with (
        _WeightsFile.opened(beside.with_suffix(WEIGHTS_SUFFIX)) as weights,
        _WeightsFile.opened(beside.with_suffix(TABLES_SUFFIX)) as tables,
    ):
        for path, model in graphs.items():
            written, packed = without_weights(model), _packed_only(model.graph)
            for tensor in model.graph.initializer:
                target = weights if tensor.name in packed else tables
                if size_of(tensor) < large_bytes:
                    written.graph.initializer.add().CopyFrom(filled(tensor))
                else:
                    target.refer(written.graph.initializer.add(), tensor)
            onnx.save(written, path)


def _named_after(beside: Path, file: Path) -> Path:
    """The name of a file of `settled` graphs beside a graph."""
    kind = next(each for each in (WEIGHTS_SUFFIX, TABLES_SUFFIX) if file.name.endswith(each))
    return beside.with_suffix(kind)


def _is_written(model: ModelProto) -> bool:
    return not any(map(key_of, model.graph.initializer))


def link_file(file: Path, target: Path) -> None:
    """Give a file another name, or copy it where the file systems are two."""
    try:
        os.link(file, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.ENOTSUP):
            raise
        shutil.copyfile(file, target)


class _WeightsFile:
    """A file of tensors, each content once; there is none where nothing was written."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._offsets: dict[bytes, int] = {}  # by the hash of a tensor's bytes
        self._places: dict[str, tuple[int, int]] = {}  # offset and length, by the key of a tensor

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
        key = key_of(tensor)
        place = self._places.get(key) if key is not None else None
        if place is None:
            place = self._written(bytes_of(tensor))
            if key is not None:
                self._places[key] = place
        offset, length = place
        reference.name, reference.data_type = tensor.name, tensor.data_type
        reference.dims.extend(tensor.dims)
        reference.data_location = TensorProto.EXTERNAL
        values = {"location": self._path.name, "offset": offset, "length": length}
        for field, value in values.items():
            reference.external_data.add(key=field, value=str(value))

    def _written(self, content: bytes | memoryview) -> tuple[int, int]:
        digest = hashlib.sha256(content).digest()
        if digest not in self._offsets:
            self._file.seek(-self._file.tell() % ALIGNMENT, 1)
            self._offsets[digest] = self._file.tell()
            self._file.write(content)
        return self._offsets[digest], len(content)


def without_weights(model: ModelProto) -> ModelProto:
    """A copy that has no tensors."""
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
