"""Rounds a decoder's weights to 4 bits for the inputs that they meet in sample texts.

The float32 graph is run on the texts piece by piece, and what each of its products takes is summed
up as second moments, a matrix for each of `parts_of` its inputs. Those of a whole decoder would
take more memory than its weights: they are there for the products of one piece at a time, in the
order of the graph.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: K inputs, N outputs of a product, S tokens

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count

import numpy as np
import onnx
from onnx import TensorProto

from export.graphs.pieces import MAX_BYTES, Pieces
from export.graphs.tensors import Array, bytes_of, key_of
from export.precision.blockwise import (
    BLOCK_SIZE,
    RoundColumns,
    is_product,
    with_products_as_matmul,
)
from export.precision.gptq import Compensation, parts_of
from export.precision.samples import prompt_of

BITS = 4
TOGETHER = 1_024  # tokens whose values are multiplied at once: a sum of moments is long to add to


class SampledRounding:
    """Rounds the weights of a graph's products for their inputs on `rows` of token ids.

    A graph for prompts has the same weights, which become the same bits.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        rows: Sequence[Sequence[int]],
        on_step: Callable[[str], None] = lambda _: None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        plain = with_products_as_matmul(model)
        tensors = {tensor.name: tensor for tensor in plain.graph.initializer}
        products = [
            (node.input[0], tensors[node.input[1]])
            for node in plain.graph.node
            if is_product(node, tensors)
        ]
        self._inputs = {_identity(weight): activation for activation, weight in products}
        self._pieces = Pieces(model, {activation for activation, _ in products}, max_bytes)
        self._rows, self._on_step = rows, on_step
        self._moments: dict[str, _Moments] = {}
        self._measured: Iterator[object] = iter(())
        self._num_rounded = 0

    def __call__(self, weight: TensorProto) -> RoundColumns:
        """The rounding of columns of one of the graph's weights."""
        activation = self._inputs[_identity(weight)]
        while activation not in self._moments:
            self._moments = {}
            if next(self._measured, None) is None:
                self._measured = self._measure()
        self._num_rounded += 1
        self._on_step(f"rounding weights: product {self._num_rounded} of {len(self._inputs)}")
        return Compensation(self._moments[activation].sums(), BITS, BLOCK_SIZE).rounded

    def _measure(self) -> Iterator[object]:
        """Measures the inputs of one piece after the other, from the graph's start."""
        num_runs, most = count(1), len(self._pieces) * len(self._rows)

        def add(name: str, values: Array) -> None:
            if name not in self._moments:
                self._moments[name] = _Moments(parts_of(values.shape[-1], BLOCK_SIZE))
            self._moments[name].add(values.reshape(-1, values.shape[-1]))

        def tell() -> None:
            done = f"{next(num_runs)} of {most} parts of samples"
            self._on_step(f"measuring inputs of weights: {done}")

        feeds = [partial(prompt_of, row, num_logits=len(row)) for row in self._rows]
        return self._pieces.run(feeds, add, tell)


class _Moments:
    """Second moments of the values of some tokens, of each part of their channels."""

    def __init__(self, parts: Sequence[slice]) -> None:
        self._parts = parts
        self._sums: list[Array] = []
        self._waiting: list[Array] = []  # values [S, K] that are multiplied together

    def add(self, values_SK: Array) -> None:
        self._waiting.append(values_SK)
        if sum(map(len, self._waiting)) >= TOGETHER:
            self.sums()

    def sums(self) -> list[Array]:
        """A matrix of each part, of all values so far."""
        if self._waiting:
            values_SK = np.concatenate(self._waiting)
            self._waiting.clear()
            added = [values_SK[:, part].T @ values_SK[:, part] for part in self._parts]
            for sum_KK, added_KK in zip(self._sums, added, strict=False):
                sum_KK += added_KK
            self._sums = self._sums or added
        return self._sums


def _identity(weight: TensorProto) -> str | bytes:
    """A value that is equal for equal weights, whatever they are called."""
    return key_of(weight) or hashlib.sha256(bytes_of(weight)).digest()
