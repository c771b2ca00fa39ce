"""Places for adapters: read from a graph, written, and chosen by rows."""

from collections.abc import Sequence

import numpy as np
import pytest

from service.contract.adapter import INPUT_SIDE, OUTPUT_SIDE, Adapter, Factors
from service.contract.tensors import DATATYPES, Signature, TensorSpec
from service.errors import LoadError
from service.generation.decoders.adapter_buffers import (
    MASK,
    PREFIX,
    AdapterBuffers,
    AdapterShape,
    fill_mask,
)

QUERY, VALUE = "layers.0.query", "layers.0.value"
SHAPE = AdapterShape(3, 2, {QUERY: (4, 5), VALUE: (4, 1)})


def inputs(**changes: Sequence[int] | None) -> Signature:
    """Tensors of a graph with 3 places of rank 2; None takes one away."""
    dims: dict[str, Sequence[int] | None] = {
        "input_ids": (-1, -1),
        MASK: (-1, 3, 2),
        f"{PREFIX}{QUERY}{INPUT_SIDE}": (4, 6),
        f"{PREFIX}{QUERY}{OUTPUT_SIDE}": (6, 5),
        f"{PREFIX}{VALUE}{INPUT_SIDE}": (4, 6),
        f"{PREFIX}{VALUE}{OUTPUT_SIDE}": (6, 1),
        **changes,
    }
    specs = (
        TensorSpec(name, DATATYPES["FP32"], tuple(size))
        for name, size in dims.items()
        if size is not None
    )
    return Signature(tuple(specs), ())


def adapter(rank: int = 2, num_in: int = 4, num_out: int = 5, module: str = QUERY) -> Adapter:
    a = np.arange(1, 1 + num_in * rank, dtype=np.float32).reshape(num_in, rank)
    b = -np.arange(1, 1 + rank * num_out, dtype=np.float32).reshape(rank, num_out)
    return Adapter("base", {module: Factors(a, b)})


def test_places_are_read_from_a_graph() -> None:
    """4 bytes * 3 places * rank 2 * (4 + 5 + 4 + 1) values."""
    shape = AdapterShape.of(inputs())
    assert shape == SHAPE
    assert shape.num_bytes == 336
    assert shape.input_names == [
        MASK,
        *(
            PREFIX + module + side
            for module in (QUERY, VALUE)
            for side in (INPUT_SIDE, OUTPUT_SIDE)
        ),
    ]


@pytest.mark.parametrize("mask", [None, (-1, 3), (-1, 0, 2), (-1, 3, -1), (-1, 3, 2, 1)])
def test_a_graph_without_a_mask_takes_no_adapters(mask: Sequence[int] | None) -> None:
    with pytest.raises(LoadError, match=r"takes adapter_mask \[-1, places, rank\] and lora"):
        AdapterShape.of(inputs(**{MASK: mask}))


def test_a_graph_without_matrices_takes_no_adapters() -> None:
    names = [f"{PREFIX}{each}{INPUT_SIDE}" for each in (QUERY, VALUE)]
    with pytest.raises(LoadError, match=r"this one takes \['adapter_mask', 'input_ids', 'lora"):
        AdapterShape.of(inputs(**dict.fromkeys(names)))


@pytest.mark.parametrize(
    ("side", "dims"),
    [
        (INPUT_SIDE, (4, 5)),
        (INPUT_SIDE, (4, 6, 1)),
        (OUTPUT_SIDE, (5, 5)),
        (OUTPUT_SIDE, (6,)),
        (OUTPUT_SIDE, None),
    ],
)
def test_matrices_have_columns_and_rows_for_all_places(
    side: str, dims: Sequence[int] | None
) -> None:
    with pytest.raises(LoadError, match=f"'{QUERY}' has A .*, expected 6 columns and rows"):
        AdapterShape.of(inputs(**{f"{PREFIX}{QUERY}{side}": dims}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (adapter(module="layers.0.key"), "changes 'layers.0.key', .* for query, value: export"),
        (adapter(rank=3), "has rank 3 at 'layers.0.query', .* at most 2: .* --lora-rank 3"),
        (adapter(num_in=3), "takes 3 values and gives 5, that of 'base' 4 and 5"),
        (adapter(num_out=6), "takes 4 values and gives 6, that of 'base' 4 and 5"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(given: Adapter, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        SHAPE.check(given)


def test_adapters_of_lower_ranks_and_of_fewer_products_fit() -> None:
    for rank in (1, 2):
        SHAPE.check(adapter(rank))


def test_a_place_has_what_was_written_last_and_others_stay() -> None:
    """The second of three places is the third and fourth column and row."""
    buffers = AdapterBuffers(SHAPE)
    a, b = (buffers.arrays[PREFIX + QUERY + side] for side in (INPUT_SIDE, OUTPUT_SIDE))
    assert (a.shape, b.shape) == ((4, 6), (6, 5))
    buffers.write(1, adapter())
    buffers.write(2, adapter())
    buffers.write(2, adapter(rank=1))
    factors = adapter(rank=1).factors[QUERY]
    np.testing.assert_array_equal(a[:, 2:3], factors.a)
    np.testing.assert_array_equal(b[2:3], factors.b)
    assert not a[:, 3:].any()
    assert not b[3:].any()
    np.testing.assert_array_equal(a[:, :2], adapter().factors[QUERY].a)
    buffers.write(1, adapter(num_out=1, module=VALUE))
    assert not a[:, :2].any()
    assert not b[:2].any()
    assert buffers.arrays[PREFIX + VALUE + INPUT_SIDE][:, :2].all()


def test_each_row_uses_its_place_or_none() -> None:
    mask = AdapterBuffers(SHAPE).empty_mask(3)
    assert (mask.shape, mask.dtype.name) == ((3, 3, 2), "bool")
    assert not mask.any()
    mask[:] = True
    fill_mask(mask, [3, 0, 1])
    assert mask.tolist() == [
        [[False] * 2, [False] * 2, [True] * 2],
        [[False] * 2] * 3,
        [[True] * 2, [False] * 2, [False] * 2],
    ]
