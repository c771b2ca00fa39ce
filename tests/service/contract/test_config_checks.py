"""Values of `config.pbtxt` at and beyond their limits."""

import pytest

from service.contract.config_checks import (
    MAX_DIMS,
    MAX_ELEMENTS,
    MAX_FILE_NAME,
    check_dims,
    check_file_name,
)
from service.errors import LoadError


@pytest.mark.parametrize(
    ("can_be_free", "expected"),
    [(True, "expected at least 1, or -1 for a free one"), (False, "expected at least 1")],
)
@pytest.mark.parametrize("dim", [0, -2])
def test_a_dim_is_at_least_1_or_free_where_it_can_be(
    dim: int, can_be_free: bool, expected: str
) -> None:
    with pytest.raises(LoadError) as raised:
        check_dims("input 'x'", [3, dim], can_be_free=can_be_free)
    assert str(raised.value) == f"config.pbtxt: input 'x' has the dim {dim}, {expected}"


def test_only_some_dims_can_be_free() -> None:
    check_dims("input 'x'", [3, -1], can_be_free=True)
    with pytest.raises(LoadError, match=r"has the dim -1, expected at least 1$"):
        check_dims("warmup input 'x'", [3, -1], can_be_free=False)


def test_dims_are_taken_up_to_their_limits() -> None:
    """Elements are the product of all dims that are not free."""
    check_dims("input 'x'", [1] * MAX_DIMS, can_be_free=False)
    with pytest.raises(LoadError, match=f"has {MAX_DIMS + 1} dims, expected at most {MAX_DIMS}"):
        check_dims("input 'x'", [1] * (MAX_DIMS + 1), can_be_free=False)
    check_dims("input 'x'", [MAX_ELEMENTS, -1, -1], can_be_free=True)
    with pytest.raises(LoadError, match=f"elements, expected at most {MAX_ELEMENTS}"):
        check_dims("input 'x'", [2**32, -1, 2**31], can_be_free=True)


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a\0b", ".", "..", "/"])
def test_a_file_s_name_has_no_path(name: str) -> None:
    with pytest.raises(LoadError, match="expected a file's name without a path"):
        check_file_name("default_model_filename", name)


def test_a_file_s_name_is_bounded_in_bytes() -> None:
    """Of "é" there are two in each character."""
    check_file_name("default_model_filename", "é" * (MAX_FILE_NAME // 2) + "a")
    with pytest.raises(LoadError, match=f"has {MAX_FILE_NAME + 1} bytes, expected at most"):
        check_file_name("default_model_filename", "é" * (MAX_FILE_NAME // 2) + "aa")
