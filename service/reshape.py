"""Tensors whose shape a client sees is not the one that the graph takes or gives.

Triton's `reshape`: a configuration states `dims` for clients and `reshape.shape` for the graph,
both without the batch axis. Each may hold -1; the k-th of one stands for the k-th of the other,
and between them the numbers of elements agree. Pure.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np


def can_reshape(dims: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether every tensor of these `dims` has exactly one form of this `shape`."""
    return list(_parts(dims)) == list(_parts(shape))


def reshaped(
    array: np.ndarray, stated: Sequence[int], wanted: Sequence[int], has_batch_axis: bool
) -> np.ndarray:
    """An array of shape `stated` as one of shape `wanted`; a batch axis stays what it is.

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
    return array.reshape((*batch, *(next(free) if dim == -1 else dim for dim in wanted)))


def _parts(dims: Sequence[int]) -> Iterator[int]:
    """Numbers of elements before, between and after the free axes."""
    start = 0
    for place, dim in enumerate((*dims, -1)):
        if dim == -1:
            yield math.prod(dims[start:place])
            start = place + 1
