"""Outputs as classes: their order, their text, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.api.classification import MAX_ELEMENTS, classify
from service.errors import InvalidArgument

NAN = float("nan")
INFINITY = float("inf")
SCORES = np.array([[0.1, 0.5, 0.25], [3, 1, 2]], np.float32)


@pytest.mark.parametrize(
    ("values", "count", "labels", "expected"),
    [
        (SCORES, 1, [], [[b"0.500000:1"], [b"3.000000:0"]]),
        (
            SCORES,
            2,
            ["ham", "spam", "maybe"],
            [[b"0.500000:1:spam", b"0.250000:2:maybe"], [b"3.000000:0:ham", b"2.000000:2:maybe"]],
        ),
        (SCORES[:1], 9, ["ham"], [[b"0.500000:1", b"0.250000:2", b"0.100000:0:ham"]]),
        (np.array([[5, -7]], np.int8), 2, [], [[b"5:0", b"-7:1"]]),
        (np.array([[2, 2**64 - 1]], np.uint64), 2, [], [[b"18446744073709551615:1", b"2:0"]]),
        (np.array([[-(2**63), 0]], np.int64), 1, [], [[b"0:1"]]),
        (np.array([[1e300, 1.0]], np.float64), 1, [], [[f"{1e300:f}:0".encode()]]),
        (np.array([[1, 1, 2, 2]], np.int32), 4, [], [[b"2:2", b"2:3", b"1:0", b"1:1"]]),
        (
            np.array([[NAN, -1, NAN, INFINITY]], np.float32),
            4,
            [],
            [[b"inf:3", b"-1.000000:1", b"nan:0", b"nan:2"]],
        ),
        (np.array([[[1, 2], [4, 3]]], np.int32), 2, [], [[b"4:2", b"3:3"]]),
    ],
)
def test_rows_become_their_best_classes(
    values: np.ndarray, count: int, labels: list[str], expected: list[list[bytes]]
) -> None:
    assert classify(values, count, labels, has_rows=True).tolist() == expected


@pytest.mark.parametrize(
    ("shape", "has_rows", "expected"),
    [
        ((0, 3), True, (0, 2)),
        ((2, 0), True, (2, 0)),
        ((2, 3), True, (2, 2)),
        ((2, 3), False, (2,)),
        ((0,), False, (0,)),
        ((), False, (1,)),
    ],
)
def test_the_shape_is_rows_and_classes(
    shape: tuple[int, ...], has_rows: bool, expected: tuple[int, ...]
) -> None:
    """Two of up to three classes; without a batch axis, all elements are classes."""
    values = np.zeros(shape, np.float32)
    assert classify(values, 2, [], has_rows=has_rows).shape == expected


def test_an_output_too_large_to_sort_meanwhile_is_refused() -> None:
    values = np.zeros((2, MAX_ELEMENTS // 2 + 1), np.float32)
    with pytest.raises(InvalidArgument, match=r"^classification output tensor too large$"):
        classify(values, 1, [], has_rows=True)


NUMBERS = st.floats(width=32, allow_nan=False)
ROWS = st.tuples(st.integers(0, 3), st.integers(0, 8))


@given(hnp.arrays(np.float32, ROWS, elements=NUMBERS))
def test_every_class_comes_once_and_none_before_a_larger_one(values: np.ndarray) -> None:
    classes = classify(values, 8, [], has_rows=True)
    for row, found in zip(values, classes.tolist(), strict=True):
        indices = [int(element.split(b":")[1]) for element in found]
        assert sorted(indices) == list(range(len(row)))
        ordered = row[indices]
        assert (ordered[:-1] >= ordered[1:]).all()
