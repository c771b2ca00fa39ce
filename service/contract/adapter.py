"""An adapter of low rank: pairs of small matrices that are added to products of a base model.

A product `x W` becomes `x W + (x A) B`. The file `adapter.safetensors` of a version folder holds
float32 tensors `{module}.A` [inputs, rank] and `{module}.B` [rank, outputs], with the adapter's
scale in B, and in its metadata the name of the base model in the repository. The format is that of
https://github.com/huggingface/safetensors, read here so that a server needs no further library.

Written by `export/adapters.py`. Knows nothing of graphs; a decoder checks the shapes against its
own.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from math import prod
from typing import Any

import numpy as np

from service.errors import LoadError

ADAPTER_FILENAME = "adapter.safetensors"
FORMAT = "1"
MAX_HEADER_BYTES = 4 * 2**20
MAX_ADAPTER_BYTES = 2 * 2**30  # of a file; rank 64 of all products of 8 G weights has 0.7 GB
MAX_MODULES = 16_384
LENGTH_BYTES = 8  # of the number in front of the header
INPUT_SIDE, OUTPUT_SIDE = ".A", ".B"
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Factors:
    """Low-rank factors added to one product, `(x A) B`, float32."""

    a: np.ndarray  # [inputs, rank]
    b: np.ndarray  # [rank, outputs]

    @property
    def rank(self) -> int:
        return int(self.a.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """One version of an adapter, by the modules whose products it changes."""

    base: str  # the name of the model that it is for
    factors: Mapping[str, Factors] = field(repr=False)
    origin: str = ""  # where it comes from, for people
    number: int = field(default_factory=lambda: next(_numbers))  # of this load, and of no other

    @property
    def rank(self) -> int:
        """The largest of its modules."""
        return max(each.rank for each in self.factors.values())

    @property
    def num_bytes(self) -> int:
        return sum(each.a.nbytes + each.b.nbytes for each in self.factors.values())


def to_bytes(adapter: Adapter) -> bytes:
    """The file of an adapter: the same bytes for the same values."""
    metadata = {"format": FORMAT, "base": adapter.base, "origin": adapter.origin}
    header: dict[str, Any] = {"__metadata__": metadata}
    parts: list[bytes] = []
    end = 0
    for module, factors in sorted(adapter.factors.items()):
        for side, array in ((INPUT_SIDE, factors.a), (OUTPUT_SIDE, factors.b)):
            content = np.ascontiguousarray(array, "<f4").tobytes()
            start, end = end, end + len(content)
            place = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [start, end]}
            header[module + side] = place
            parts.append(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return b"".join([len(text).to_bytes(LENGTH_BYTES, "little"), text, *parts])


def from_bytes(content: bytes) -> Adapter:
    """The adapter of a file, or `LoadError` naming what is wrong in it."""
    header, data = _split(content)
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise _wrong(
            f"its metadata has no format {FORMAT}: `attendant import-adapter` writes one of a "
            "folder of PEFT"
        )
    base, origin = metadata.get("base"), metadata.get("origin", "")
    if not isinstance(base, str) or not base or not isinstance(origin, str):
        raise _wrong(f"base is {base!r}, expected the name of a model")
    if not 0 < len(header) <= 2 * MAX_MODULES:
        raise _wrong(f"it has {len(header)} tensors, expected 2 to {2 * MAX_MODULES}")
    modules = {name.removesuffix(INPUT_SIDE).removesuffix(OUTPUT_SIDE) for name in header}
    expected = {module + side for module in modules for side in (INPUT_SIDE, OUTPUT_SIDE)}
    if lone := sorted(expected ^ header.keys()):
        raise _wrong(f"'{lone[0]}' stands alone, expected .A and .B of each module")
    tensors = {name: _tensor(name, place, data) for name, place in header.items()}
    return Adapter(base, {each: _factors(each, tensors) for each in sorted(modules)}, origin)


def _split(content: bytes) -> tuple[dict[str, Any], np.ndarray]:
    """The header, and the bytes behind it."""
    size = int.from_bytes(content[:LENGTH_BYTES], "little")
    if len(content) < LENGTH_BYTES or size > min(MAX_HEADER_BYTES, len(content) - LENGTH_BYTES):
        raise _wrong(
            f"its header has {size} bytes by its first number, expected at most "
            f"{MAX_HEADER_BYTES}, and no more than the file has"
        )
    data = np.frombuffer(content, np.uint8, offset=LENGTH_BYTES + size)
    try:
        header = json.loads(content[LENGTH_BYTES : LENGTH_BYTES + size])
    except (ValueError, RecursionError) as error:
        raise _wrong(f"its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise _wrong("its header is no object")
    return header, data


def _tensor(name: str, place: object, data: np.ndarray) -> np.ndarray:
    """A copy, float32 of two axes, all finite."""
    entry = place if isinstance(place, dict) else {}
    if entry.get("dtype") != "F32":
        raise _wrong(f"'{name}' is {entry.get('dtype')!r}, expected F32")
    shape = _sizes(entry.get("shape"), f"the shape of '{name}'", least=1)
    start, end = _sizes(entry.get("data_offsets"), f"the place of '{name}'", least=0)
    if end - start != 4 * prod(shape) or end > len(data):
        raise _wrong(
            f"'{name}' of {shape} lies at {start} to {end}, and the file has {len(data)} bytes"
        )
    array = data[start:end].view("<f4").reshape(shape).astype(np.float32)
    if not np.isfinite(array).all():
        raise _wrong(f"'{name}' has values that are not finite")
    return array


def _sizes(values: object, what: str, least: int) -> list[int]:
    """Two whole numbers."""
    if isinstance(values, list) and len(values) == 2:
        sizes = [value for value in values if type(value) is int and value >= least]
        if len(sizes) == 2:
            return sizes
    raise _wrong(f"{what} is {values!r}, expected two numbers from {least} on")


def _factors(module: str, tensors: Mapping[str, np.ndarray]) -> Factors:
    factors = Factors(tensors[module + INPUT_SIDE], tensors[module + OUTPUT_SIDE])
    if len(factors.b) != factors.rank:
        raise _wrong(
            f"'{module}' has A {list(factors.a.shape)} and B {list(factors.b.shape)}, "
            "expected one rank"
        )
    return factors


def _wrong(reason: str) -> LoadError:
    return LoadError(f"{ADAPTER_FILENAME}: {reason}")
