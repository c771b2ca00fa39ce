"""Rounds a decoder's weights to 4 bits for the inputs that they meet in sample texts.

The float32 graph is run on the texts piece by piece, and what each of its products takes is summed
up as second moments, a matrix for each of `parts_of` its inputs. Those of a whole decoder would
take more memory than its weights: they are there for the products of one piece at a time, in the
order of the graph.
"""
# ruff: noqa: N806 - suffixes are array layouts: K inputs, N outputs of a product, S tokens

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

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
        self._parts = {
            activation: parts_of(weight.dims[0], BLOCK_SIZE) for activation, weight in products
        }
        self._pieces = Pieces(model, self._parts.keys(), max_bytes)
        self._rows, self._on_step = rows, on_step
        self._moments: dict[str, list[Array]] = {}
        self._measured: Iterator[list[str]] = iter(())
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
        return Compensation(self._moments[activation], BITS, BLOCK_SIZE).rounded

    def _measure(self) -> Iterator[list[str]]:
        """Names of the inputs whose moments are there, piece by piece from the graph's start."""
        num_runs = 0

        def add(name: str, values: Array) -> None:
            values_SK = values.reshape(-1, values.shape[-1])
            products = [values_SK[:, part].T @ values_SK[:, part] for part in self._parts[name]]
            for moments_KK, product_KK in zip(
                self._moments.setdefault(name, products), products, strict=True
            ):
                if moments_KK is not product_KK:
                    moments_KK += product_KK

        def tell() -> None:
            nonlocal num_runs
            num_runs += 1
            most = len(self._pieces) * len(self._rows)
            self._on_step(f"measuring inputs of weights: {num_runs} of {most} parts of samples")

        feeds = [partial(prompt_of, row, num_logits=len(row)) for row in self._rows]
        return self._pieces.run(feeds, add, tell)


def _identity(weight: TensorProto) -> str | bytes:
    """A value that is equal for equal weights, whatever they are called."""
    return key_of(weight) or hashlib.sha256(bytes_of(weight)).digest()
