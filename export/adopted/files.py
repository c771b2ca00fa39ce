"""A graph of a folder read without its external data, and the files that hold these.

What a graph names stays in the folder: no path and no link leads out of it. Imports no PyTorch.
"""

import math
from collections.abc import Iterator
from os.path import isfile  # Path.is_file raises for names that none can have
from pathlib import Path, PurePosixPath

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from export.adopted.editing import graphs_in
from export.errors import ExportError
from models.errors import shown
from service.contract.manifest import MODEL_FILENAME

BLOBS = "blobs"  # of the hub's cache, whose files are links into it
MAX_GRAPH_BYTES = 2**31 - 1  # of a protobuf message


def read_graph(path: Path, root: Path) -> ModelProto:
    """The graph of a file, whose external data stay where they are.

    Raises `ExportError` where the file is no graph, or what it names is not in `root`.
    """
    _check_inside(path, root)
    if path.stat().st_size > MAX_GRAPH_BYTES:
        raise ExportError(f"{path} has {path.stat().st_size} bytes, and a graph has 2 GiB at most")
    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, ValueError) as error:
        raise ExportError(f"{path} is not a readable graph in ONNX: {error}") from error
    if not model.graph.node or not model.graph.output:
        raise ExportError(f"{path} is not a readable graph in ONNX: it computes nothing")
    return model


def take_data(model: ModelProto, path: Path, root: Path) -> dict[str, Path]:
    """The files of a graph's external data, by the names that the graph has for them from now on.

    No such name is that of another file of a model. Raises `ExportError` where a file lacks what
    the graph names.
    """
    needed: dict[str, int] = {}
    tensors: list[tuple[TensorProto, str]] = []
    for tensor in filter(uses_external_data, _tensors(model)):
        location, end = _place_of(tensor, path)
        place = PurePosixPath(location)
        if place.is_absolute() or len(place.parts) != 1 or ".." in place.parts:
            raise ExportError(
                f"{path} names its data {shown(location)}, and must name a file beside it"
            )
        needed[location] = max(end, needed.get(location, 0))
        tensors.append((tensor, location))
    files: dict[str, Path] = {}
    renamed: dict[str, str] = {}
    for name, size in sorted(needed.items()):
        file = path.parent / name
        if not isfile(file):
            raise ExportError(f"{file} is missing, which {path.name} has its weights in: copy it")
        _check_inside(file, root)
        if file.stat().st_size < size:
            raise ExportError(
                f"{file} has {file.stat().st_size} bytes, and {path.name} reads {size} of it: "
                "copy it again"
            )
        renamed[name] = f"{MODEL_FILENAME}.data{len(files)}"
        files[renamed[name]] = file
    for tensor, location in tensors:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = renamed[location]
    return files


def _place_of(tensor: TensorProto, path: Path) -> tuple[str, int]:
    """The file of a tensor's data, and the byte there that they end before."""
    try:
        info = ExternalDataInfo(tensor)
        size = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (ValueError, KeyError) as error:
        raise ExportError(
            f"{path}: the place of the data of {shown(tensor.name)} is not readable: {error}"
        ) from error
    return info.location, (info.offset or 0) + (info.length or math.prod(tensor.dims) * size)


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    for graph in graphs_in(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _check_inside(path: Path, root: Path) -> None:
    """Raise `ExportError` for a link out of the folder; the hub's cache has its own."""
    target, top = path.resolve(), root.resolve()
    of_cache = root.absolute().parent.parent / BLOBS
    if target.is_relative_to(top) or target.is_relative_to(of_cache.resolve()):
        return
    raise ExportError(f"{path} is a link to {target}, outside of the folder: copy that file")
