"""Tensors' values in JSON: what is taken, what is refused, and what is written."""

import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.contract.tensors import DATATYPES, to_raw
from service.errors import InvalidArgument
from service.http.kserve.json_data import MAX_DEPTH, PIECE_BYTES, read_data, write_data

NUMBERS = [
    datatype
    for datatype in DATATYPES.values()
    if datatype.name not in ("BOOL", "FP16", "BF16", "BYTES")
]


def read(text: str, datatype: str) -> Any:
    return read_data(msgspec.Raw(text.encode()), datatype, "x")


def arrays(**shape: Any) -> st.SearchStrategy[np.ndarray]:
    def of(datatype: Any) -> st.SearchStrategy[np.ndarray]:
        elements = hnp.from_dtype(datatype.dtype, allow_nan=False, allow_infinity=False)
        return hnp.arrays(datatype.dtype, hnp.array_shapes(min_dims=1, **shape), elements=elements)

    return st.sampled_from([*NUMBERS, DATATYPES["BOOL"]]).flatmap(of)


def name_of(array: np.ndarray) -> str:
    return next(each.name for each in DATATYPES.values() if each.dtype == array.dtype)


@given(arrays(max_dims=4, max_side=4), st.booleans())
def test_numbers_come_back_as_they_were_written_flat_or_nested(
    array: np.ndarray, is_nested: bool
) -> None:
    name = name_of(array)
    flat = write_data(array.tobytes(), name, array.size, "x")
    assert json.loads(flat) == array.ravel().tolist()
    text = json.dumps(array.tolist()) if is_nested else flat.decode()
    assert read(text, name) == array.tobytes()


@pytest.mark.parametrize("shape", [(60_000,), (300, 200), (2, 30_000), (30_000, 2), (3, 2, 10_000)])
def test_long_lists_are_the_same_in_pieces(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype("<f4")
    text = json.dumps(array.tolist())
    assert len(text) > 2 * PIECE_BYTES
    assert read(text, "FP32") == array.tobytes()
    assert read(text.replace(", ", ",\n "), "FP32") == array.tobytes()
    assert (
        json.loads(write_data(array.tobytes(), "FP32", array.size, "x")) == array.ravel().tolist()
    )


def test_a_value_of_another_kind_is_named_by_its_place() -> None:
    with pytest.raises(InvalidArgument) as caught:
        read('["a", 3]', "BYTES")
    assert str(caught.value) == (
        "Unable to parse 'data' of input 'x': data[1] is a whole number, expected a text"
    )


@pytest.mark.parametrize("datatype", NUMBERS, ids=lambda datatype: datatype.name)
def test_numbers_out_of_range_are_refused_by_the_input_s_name(datatype: Any) -> None:
    if datatype.dtype.kind == "f":
        limits = [-1e39, 1e39] if datatype.name == "FP32" else []
    else:
        limits = [np.iinfo(datatype.dtype).min - 1, np.iinfo(datatype.dtype).max + 1]
    for number in limits:
        with pytest.raises(InvalidArgument, match=r"^Unable to parse 'data' of input 'x': "):
            read(f"[{number}]", datatype.name)


@pytest.mark.parametrize(
    ("text", "datatype"),
    [
        ("[1.5]", "INT32"),
        ("[true]", "INT32"),
        ('["1"]', "INT32"),
        ("[null]", "FP32"),
        ("[1]", "BOOL"),
        ('["true"]', "BOOL"),
        ("[true]", "FP32"),
        ("[1]", "BYTES"),
        ("[1e400]", "FP64"),
        ("[1, [2]]", "INT32"),
        ("[[1], 2]", "INT32"),
        ("[[1], [[2]]]", "INT32"),
        ("5", "INT32"),
        ("null", "INT32"),
        ('"abc"', "BYTES"),
        ('{"0": 1}', "INT32"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "INT32"),
    ],
)
def test_values_of_another_type_or_at_unequal_depths_are_refused(text: str, datatype: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^Unable to parse 'data' of input 'x': "):
        read(text, datatype)


def test_a_wrong_value_late_in_a_long_list_is_refused_too() -> None:
    values = ["1.0"] * PIECE_BYTES
    values[-5] = "true"
    for text in (f"[{','.join(values)}]", f"[[{','.join(values)}],[2]]"):
        with pytest.raises(InvalidArgument, match="is true or false, expected a number"):
            read(text, "FP32")


def test_strings_are_utf_8() -> None:
    assert read('["a", "\\u00e9\\ud83d\\ude00", ""]', "BYTES") == [b"a", "é😀".encode(), b""]
    assert read('[["a"], ["b"]]', "BYTES") == [b"a", b"b"]
    for bad in (b'["\xff"]', b'["\\ud800"]'):
        with pytest.raises(InvalidArgument, match="Unable to parse 'data'"):
            read_data(msgspec.Raw(bad), "BYTES", "x")


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_is_binary_only(datatype: str) -> None:
    with pytest.raises(InvalidArgument, match=f"receiving {datatype} data via JSON .* input x"):
        read("[1.0]", datatype)
    with pytest.raises(InvalidArgument, match=f"sending {datatype} data via JSON .* output 'x'"):
        write_data(bytes(2), datatype, 1, "x")


def test_an_unknown_type_has_no_bytes_so_that_it_is_refused_by_name_later() -> None:
    assert read("[1]", "FP8") == b""


def test_numbers_that_are_not_finite_are_written_as_triton_does() -> None:
    array = np.array([1.5, math.nan, math.inf, -math.inf], "<f4")
    text = write_data(array.tobytes(), "FP32", 4, "x")
    assert text == b"[1.5, NaN, Infinity, -Infinity]"


def test_strings_that_are_not_utf_8_are_not_written() -> None:
    good, bad = np.array([b"a", "é".encode()], object), np.array([b"\xff"], object)
    assert write_data(to_raw(good), "BYTES", 2, "x") == '["a","é"]'.encode()
    with pytest.raises(InvalidArgument, match="output 'x' has a string that is not UTF-8"):
        write_data(to_raw(bad), "BYTES", 1, "x")
