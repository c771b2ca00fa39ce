"""The bounds of JSON before it is decoded: its depth and its values, found in one pass."""

import time
from contextlib import suppress

import pytest

from service.http.body import check_depth, check_parts
from service.http.status import HttpError


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        (b"[[[]]]", 3),
        (b'{"a": [{"b": 1}]}', 3),
        (b'["[[[["]', 1),
        (b'["\\"[[[[", [1]]', 2),
        (b'["\\\\", [[1]]]', 3),
        (b'[[1, "a]]]]", [2]]]', 3),
        (b'["[[[[', 1),  # a string that does not end
        (b'["[[[[\\', 1),
        (b"]]]][[", 0),
    ],
)
def test_brackets_in_strings_count_for_nothing(body: bytes, depth: int) -> None:
    check_depth(body, depth)
    if depth > 1:
        with pytest.raises(HttpError, match=f"nested {depth} deep, expected at most {depth - 1}"):
            check_depth(body, depth - 1)


def test_commas_in_strings_count_for_nothing() -> None:
    check_parts(b'["a,b,c,d,e", 1]', 3)
    with pytest.raises(HttpError, match="more than 3 values"):
        check_parts(b"[1, 2, 3, 4]", 3)


@pytest.mark.parametrize("piece", [b"[", b'"', b'\\"', b'["', b"\\\\", b'"\\', b'[\\"'])
def test_no_body_takes_longer_than_its_length(piece: bytes) -> None:
    """A megabyte, which took minutes where each quote was tried as a beginning."""
    for body in (piece * (2**20 // len(piece)), b'"' + piece * (2**20 // len(piece))):
        started_s = time.monotonic()
        for check in (check_depth, check_parts):
            with suppress(HttpError):
                check(b"[" * 100 + b"," * 100 + body, 10)
        assert time.monotonic() - started_s < 5.0
