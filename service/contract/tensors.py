"""The protocol's data types and their bytes; the names, types and dims of a graph's tensors.

One table from the protocol's name to NumPy and to ONNX Runtime's type string. Raw
tensors are little endian; a BYTES element is a uint32 length and that many bytes
(Triton's binary tensor data extension). BYTES arrays hold `bytes` in object arrays.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Datatype:
    """One element type; `contents_field` is where typed requests carry it."""

    name: str
    dtype: np.dtype
    onnx: str
    contents_field: str | None

    @property
    def config_name(self) -> str:
        """The name in config.pbtxt, where BYTES is called STRING."""
        return "TYPE_STRING" if self.name == "BYTES" else f"TYPE_{self.name}"


BF16 = "BF16"
BYTES = "BYTES"
_ROWS = (
    ("BOOL", "?", "tensor(bool)", "bool_contents"),
    ("INT8", "<i1", "tensor(int8)", "int_contents"),
    ("INT16", "<i2", "tensor(int16)", "int_contents"),
    ("INT32", "<i4", "tensor(int32)", "int_contents"),
    ("INT64", "<i8", "tensor(int64)", "int64_contents"),
    ("UINT8", "<u1", "tensor(uint8)", "uint_contents"),
    ("UINT16", "<u2", "tensor(uint16)", "uint_contents"),
    ("UINT32", "<u4", "tensor(uint32)", "uint_contents"),
    ("UINT64", "<u8", "tensor(uint64)", "uint64_contents"),
    ("FP16", "<f2", "tensor(float16)", None),
    (BF16, "<u2", "tensor(bfloat16)", None),  # NumPy has no such type: opaque bits
    ("FP32", "<f4", "tensor(float)", "fp32_contents"),
    ("FP64", "<f8", "tensor(double)", "fp64_contents"),
    (BYTES, "O", "tensor(string)", "bytes_contents"),
)
DATATYPES = {row[0]: Datatype(row[0], np.dtype(row[1]), row[2], row[3]) for row in _ROWS}
BY_ONNX = {datatype.onnx: datatype for datatype in DATATYPES.values()}
BY_CONFIG_NAME = {datatype.config_name: datatype for datatype in DATATYPES.values()}


def to_raw(array: np.ndarray) -> bytes:
    """An array's bytes as the protocol carries them; `str` elements go as UTF-8."""
    if array.dtype != object:
        return array.tobytes()
    parts: list[bytes] = []
    for element in array.ravel().tolist():
        text = element.encode() if isinstance(element, str) else element
        parts += (struct.pack("<I", len(text)), text)
    return b"".join(parts)


def strings_from_raw(raw: bytes, count: int, name: str, model: str) -> list[bytes]:
    """The `count` elements of a BYTES tensor, or `InvalidArgument` where its lengths lie."""
    elements: list[bytes] = []
    offset, end = 0, len(raw)
    while offset < end:
        if len(elements) == count:
            num_found = count + 1
            raise InvalidArgument(
                f"unexpected number of string elements {num_found} for inference input '{name}' "
                f"for model '{model}', expecting {count}"
            )
        if end - offset < 4:
            raise InvalidArgument(
                f"incomplete string length indicator for inference input '{name}' for model "
                f"'{model}', expecting 4 bytes but only {end - offset} bytes available. "
                "Please make sure the string length indicator is in one buffer."
            )
        (length,) = struct.unpack_from("<I", raw, offset)
        offset += 4
        if length > end - offset:
            raise InvalidArgument(
                f"incomplete string data for inference input '{name}', "
                f"expecting string of length {length} but only {end - offset} bytes available"
            )
        elements.append(raw[offset : offset + length])
        offset += length
    if len(elements) < count:
        raise InvalidArgument(
            f"expected {count} string elements for inference input '{name}' for model "
            f"'{model}', got {len(elements)}"
        )
    return elements


Arrays = Mapping[str, np.ndarray]


def can_reshape(dims: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether every tensor of these `dims` has exactly one form of this `shape`."""
    return list(_parts(dims)) == list(_parts(shape))


def reshaped(
    array: np.ndarray, stated: Sequence[int], target: Sequence[int], has_batch_axis: bool
) -> np.ndarray:
    """An array of shape `stated` as one of shape `target`; a batch axis stays what it is.

    Raises `ValueError` where the array's shape is not `stated`.
    """
    array = np.asarray(array)  # a graph may give a scalar that is none
    batch = array.shape[:1] if has_batch_axis else ()
    own = array.shape[len(batch) :]
    fits = len(own) == len(stated) and all(
        want in (-1, have) for want, have in zip(stated, own, strict=True)
    )
    if not fits:
        raise ValueError(f"has shape {list(own)}, expected {list(stated)}")
    free = iter([have for want, have in zip(stated, own, strict=True) if want == -1])
    return array.reshape((*batch, *(next(free) if dim == -1 else dim for dim in target)))


def _parts(dims: Sequence[int]) -> Iterator[int]:
    """Numbers of elements before, between and after the free axes."""
    start = 0
    for place, dim in enumerate((*dims, -1)):
        if dim == -1:
            yield math.prod(dims[start:place])
            start = place + 1


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output. `dims` may hold -1, and leave out the batch axis in a config."""

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    is_optional: bool = False  # inputs only
    reshape: tuple[int, ...] | None = None  # the graph's dims, where clients see others
    # The name of a graph's first axis where it is free; empty where it has none.
    first_axis: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Signature:
    """A graph's inputs and outputs, with complete dims."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    overridable: tuple[TensorSpec, ...] = ()  # inputs that the graph has values for
    # Names of operators that the graph computes, where the session tells them.
    operators: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def can_batch(self) -> bool:
        """Whether every tensor has a free first axis."""
        return all(spec.dims[:1] == (-1,) for spec in self.inputs + self.outputs)

    @property
    def row_axis(self) -> str:
        """The one name of all first axes; empty where one has no name, or they have several."""
        names = {spec.first_axis for spec in self.inputs + self.outputs}
        return names.pop() if len(names) == 1 else ""
