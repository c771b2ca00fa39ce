"""Bytes on the wire: every type there and back, and lengths that lie."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.contract.tensors import (
    BY_CONFIG_NAME,
    BY_ONNX,
    DATATYPES,
    Datatype,
    strings_from_raw,
    to_raw,
)
from service.errors import InvalidArgument

NUMERIC = [datatype for datatype in DATATYPES.values() if datatype.name != "BYTES"]


@given(st.data(), st.sampled_from(NUMERIC))
def test_every_numeric_type_survives_the_wire(data: st.DataObject, datatype: Datatype) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    array = data.draw(hnp.arrays(datatype.dtype, shape))
    raw = to_raw(array)
    assert len(raw) == array.size * datatype.dtype.itemsize
    back = np.frombuffer(raw, datatype.dtype).reshape(shape)
    assert back.tobytes() == array.tobytes()  # NaN included


@given(hnp.arrays(np.dtype("<i4"), (3, 4)))
def test_arrays_that_are_not_contiguous_go_in_order_of_their_indices(array: np.ndarray) -> None:
    assert to_raw(array.T) == array.T.copy().tobytes()


@given(st.lists(st.binary(max_size=20)))
def test_strings_of_any_bytes_survive_the_wire(elements: list[bytes]) -> None:
    array = np.empty(len(elements), object)
    array[:] = elements
    assert strings_from_raw(to_raw(array), len(elements), "IN", "m") == elements


@given(st.lists(st.text(max_size=20), min_size=1))
def test_text_elements_go_as_utf_8(texts: list[str]) -> None:
    raw = to_raw(np.array(texts, object))
    assert strings_from_raw(raw, len(texts), "IN", "m") == [text.encode() for text in texts]


def test_a_string_is_a_little_endian_length_and_its_bytes() -> None:
    raw = to_raw(np.array([["ab", b""], ["\N{SNOWMAN}", b"\x00\xff"]], object))
    assert raw == b"\2\0\0\0ab" + b"\0\0\0\0" + b"\3\0\0\0\xe2\x98\x83" + b"\2\0\0\0\x00\xff"


@given(st.binary(max_size=40), st.integers(0, 6))
def test_arbitrary_bytes_are_strings_or_refused(raw: bytes, count: int) -> None:
    try:
        elements = strings_from_raw(raw, count, "IN", "m")
    except InvalidArgument:
        return
    assert len(elements) == count
    assert to_raw(np.array([*elements, None], object)[:-1]) == raw


def packed(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


@pytest.mark.parametrize(
    ("raw", "count", "text"),
    [
        (
            packed(b"a") + b"\1\0",
            2,
            "incomplete string length indicator for inference input 'IN' for model 'm', "
            "expecting 4 bytes but only 2 bytes available. Please make sure the string length "
            "indicator is in one buffer.",
        ),
        (
            struct.pack("<I", 100) + b"abc",
            1,
            "incomplete string data for inference input 'IN', "
            "expecting string of length 100 but only 3 bytes available",
        ),
        (
            struct.pack("<I", 2**32 - 1),
            1,
            "incomplete string data for inference input 'IN', "
            "expecting string of length 4294967295 but only 0 bytes available",
        ),
        (
            packed(b"a"),
            2,
            "expected 2 string elements for inference input 'IN' for model 'm', got 1",
        ),
        (
            packed(b"a", b"b", b"c"),
            2,
            "unexpected number of string elements 3 for inference input 'IN' for model 'm', "
            "expecting 2",
        ),
        (
            packed(b""),
            0,
            "unexpected number of string elements 1 for inference input 'IN' for model 'm', "
            "expecting 0",
        ),
    ],
)
def test_a_length_that_lies_is_refused(raw: bytes, count: int, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        strings_from_raw(raw, count, "IN", "m")
    assert str(caught.value) == text


def test_every_name_leads_to_one_type() -> None:
    assert len(BY_ONNX) == len(BY_CONFIG_NAME) == len(DATATYPES) == 14
    assert BY_CONFIG_NAME["TYPE_STRING"].name == "BYTES"
    assert BY_CONFIG_NAME["TYPE_FP32"].name == "FP32"
    assert BY_ONNX["tensor(float16)"].name == "FP16"
    assert BY_ONNX["tensor(bfloat16)"].name == BY_CONFIG_NAME["TYPE_BF16"].name == "BF16"


@pytest.mark.parametrize("datatype", NUMERIC, ids=lambda datatype: datatype.name)
def test_numbers_are_little_endian_whatever_the_machine(datatype: Datatype) -> None:
    assert datatype.dtype.newbyteorder("<") == datatype.dtype
