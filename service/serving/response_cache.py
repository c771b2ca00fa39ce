"""Answers of models, kept for requests that ask the same; bounded in bytes.

Pure policy: no clock, thread or metric. The least recently used answers leave first. A key is a
digest of all that an answer depends on, so that equal keys mean equal answers; it begins with the
number of the model's load, so that a model that is loaded again never gives an answer of its
predecessor, whose entries are no longer looked up and leave as the least recently used ones.
"""

import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count

import numpy as np

MAX_INPUT_BYTES = 4 * 2**20  # hashed on the event loop, in 5 ms; larger requests are computed
# What Python's objects take besides the numbers in them: a key, a dictionary, an array each.
ENTRY_BYTES = 512
ARRAY_BYTES = 160
ELEMENT_BYTES = 8 + sys.getsizeof(b"")  # of a BYTES tensor: a pointer, and an object

Outputs = Mapping[str, np.ndarray]
Parameters = Mapping[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class _Entry:
    outputs: dict[str, np.ndarray]
    num_bytes: int


class ResponseCache:
    """Outputs by key, never more than `max_bytes` of them; 0 keeps nothing."""

    def __init__(self, max_bytes: int = 0) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # least recently used first
        self._loads = count()

    def __repr__(self) -> str:
        return f"<ResponseCache {self.num_entries} entries, {self.num_bytes}/{self.max_bytes} B>"

    @property
    def num_entries(self) -> int:
        return len(self._entries)

    def for_load(self) -> "LoadCache":
        """The part of one load of a model, whose answers no other load gives."""
        return LoadCache(self, next(self._loads))

    def get(self, key: bytes) -> dict[str, np.ndarray] | None:
        """The outputs, which may not be written to; they count as just used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return dict(entry.outputs)

    def put(self, key: bytes, outputs: Outputs) -> None:
        """Keep a copy, unless it is larger than the cache; the oldest entries make room."""
        num_bytes = size_of(outputs)
        if num_bytes > self.max_bytes:
            return
        self._remove(key)
        while self.num_bytes + num_bytes > self.max_bytes:
            self._remove(next(iter(self._entries)))
        self._entries[key] = _Entry(dict(_frozen_copies(outputs)), num_bytes)
        self.num_bytes += num_bytes

    def check_integrity(self) -> None:
        """Recount everything; raises `AssertionError` where the books are wrong."""
        assert self.num_bytes == sum(size_of(entry.outputs) for entry in self._entries.values())
        assert self.num_bytes <= self.max_bytes

    def _remove(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.num_bytes -= entry.num_bytes


class LoadCache:
    """The part of the server's cache that belongs to one load of a model."""

    def __init__(self, cache: ResponseCache, load: int) -> None:
        self._cache = cache
        self._load = load

    def key_of(self, inputs: Outputs, parameters: Parameters) -> bytes | None:
        """The key of a request; None if it is too large to be looked up."""
        if sum(map(_num_bytes, inputs.values())) > MAX_INPUT_BYTES:
            return None
        digest = blake2b(self._load.to_bytes(8), digest_size=32)
        for part in _parts(inputs, parameters):
            digest.update(len(part).to_bytes(8))  # so that no two lists of parts read alike
            digest.update(part)
        return digest.digest()

    def get(self, key: bytes) -> dict[str, np.ndarray] | None:
        return self._cache.get(key)

    def put(self, key: bytes, outputs: Outputs) -> None:
        self._cache.put(key, outputs)


def size_of(outputs: Outputs) -> int:
    """About what an entry takes in memory, with all that belongs to it."""
    return ENTRY_BYTES + sum(ARRAY_BYTES + _num_bytes(array) for array in outputs.values())


def _num_bytes(array: np.ndarray) -> int:
    if array.dtype != object:
        return array.nbytes
    elements = array.ravel().tolist()
    return len(elements) * ELEMENT_BYTES + sum(map(_length, elements))


def _length(element: str | bytes) -> int:
    """In bytes, as a `str` beyond Latin-1 has up to four a character."""
    return len(element) if isinstance(element, bytes) else len(element.encode())


def _frozen_copies(outputs: Outputs) -> Iterator[tuple[str, np.ndarray]]:
    """Copies: a view would keep the outputs of its whole batch. Elements of BYTES are immutable."""
    for name, array in outputs.items():
        copied = array.copy()
        copied.flags.writeable = False
        yield name, copied


def _parts(inputs: Outputs, parameters: Parameters) -> Iterator[bytes]:
    """All that an answer depends on, in an order that does not depend on the client's."""
    for name, array in sorted(inputs.items()):
        yield f"{name}\n{array.dtype.name}\n{array.shape}".encode()
        if array.dtype == object:
            elements = array.ravel().tolist()
            yield np.fromiter(map(len, elements), np.int64).tobytes()
            yield b"".join(elements)
        else:
            yield array.tobytes()
    for name, value in sorted(parameters.items()):
        yield f"{name}\n{type(value).__name__}\n{value}".encode()
