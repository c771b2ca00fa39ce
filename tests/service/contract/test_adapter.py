"""The file of an adapter: what is written is read, and nothing else is taken for one."""

import json
import random
from typing import Any

import numpy as np
import pytest

from service.contract.adapter import MAX_HEADER_BYTES, Adapter, Factors, from_bytes, to_bytes
from service.errors import LoadError

QUERY = "layers.0.attention.query"


def adapter() -> Adapter:
    generator = np.random.default_rng(0)

    def values(*shape: int) -> np.ndarray:
        return generator.normal(size=shape).astype(np.float32)

    factors = {
        QUERY: Factors(values(6, 2), values(2, 4)),
        "layers.1.feed_forward.gate": Factors(values(6, 3), values(3, 9)),
    }
    return Adapter("writer", factors, "somewhere")


def test_what_is_written_is_read() -> None:
    content = to_bytes(adapter())
    read = from_bytes(content)
    assert (read.base, read.origin, read.rank) == ("writer", "somewhere", 3)
    assert read.num_bytes == 4 * (6 * 2 + 2 * 4 + 6 * 3 + 3 * 9)
    for module, factors in adapter().factors.items():
        assert np.array_equal(read.factors[module].a, factors.a)
        assert np.array_equal(read.factors[module].b, factors.b)
    assert to_bytes(read) == content
    assert from_bytes(content).number != read.number


def test_the_library_of_the_format_reads_the_same() -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = safetensors.load(to_bytes(adapter()))
    assert np.array_equal(tensors[f"{QUERY}.A"], adapter().factors[QUERY].a)
    again = safetensors.save(tensors, {"format": "1", "base": "writer", "origin": ""})
    assert np.array_equal(from_bytes(again).factors[QUERY].b, adapter().factors[QUERY].b)


def with_header(change: Any) -> bytes:
    content = to_bytes(adapter())
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def not_finite() -> bytes:
    content = bytearray(to_bytes(adapter()))
    content[-4:] = np.float32("nan").tobytes()
    return bytes(content)


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "its header has 0 bytes"),
    "cut": (to_bytes(adapter())[:-1], "lies at .* and the file has"),
    "long header": ((MAX_HEADER_BYTES + 1).to_bytes(8, "little"), "expected at most 4194304"),
    "no JSON": ((2).to_bytes(8, "little") + b"{]", "its header is no JSON"),
    "deep JSON": ((200_000).to_bytes(8, "little") + b"[" * 200_000, "its header is no JSON"),
    "no object": ((2).to_bytes(8, "little") + b"[]", "its header is no object"),
    "PEFT's own": (with_header(lambda h: h.pop("__metadata__")), "no format 1: `attendant import-"),
    "no base": (with_header(lambda h: h["__metadata__"].pop("base")), "base is None, expected"),
    "nothing": (
        with_header(lambda h: [h.pop(name) for name in list(h) if name[0] != "_"]),
        "it has 0 tensors",
    ),
    "one side": (with_header(lambda h: h.pop(f"{QUERY}.A")), f"'{QUERY}.A' stands alone"),
    "other tensor": (with_header(lambda h: h.update(other=h[f"{QUERY}.A"])), "'other"),
    "half precision": (with_header(lambda h: h[f"{QUERY}.A"].update(dtype="F16")), "expected F32"),
    "three axes": (
        with_header(lambda h: h[f"{QUERY}.A"].update(shape=[6, 2, 1])),
        r"shape of '.*' is \[6, 2, 1\]",
    ),
    "negative": (
        with_header(lambda h: h[f"{QUERY}.A"].update(shape=[-6, -2])),
        "expected two numbers from 1",
    ),
    "a truth": (
        with_header(lambda h: h[f"{QUERY}.A"].update(shape=[True, 12])),
        "expected two numbers from 1",
    ),
    "another size": (
        with_header(lambda h: h[f"{QUERY}.A"].update(data_offsets=[0, 8])),
        "lies at 0 to 8",
    ),
    "beyond the file": (
        with_header(lambda h: h[f"{QUERY}.A"].update(data_offsets=[10**9, 10**9 + 48])),
        "and the file has",
    ),
    "two ranks": (
        with_header(lambda h: h[f"{QUERY}.A"].update(shape=[4, 3])),
        "expected one rank",
    ),
    "not a number": (not_finite(), "not finite"),
    "not an object": (with_header(lambda h: h.update({f"{QUERY}.A": 3})), "is None, expected F32"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_with_what_is_wrong(name: str) -> None:
    content, message = BROKEN[name]
    with pytest.raises(LoadError, match=f"^adapter.safetensors: .*{message}"):
        from_bytes(content)


def test_damaged_bytes_are_refused_or_read() -> None:
    """No other error than `LoadError`, of 2,000 files with up to 8 bytes changed or cut."""
    content = to_bytes(adapter())
    chance = random.Random(0)  # noqa: S311 - a simulation
    for _ in range(2_000):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            from_bytes(bytes(damaged[: chance.choice((len(damaged), chance.randrange(500)))]))
        except LoadError:
            continue
