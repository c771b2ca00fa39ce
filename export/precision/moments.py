"""Rounds a decoder's weights to 4 bits for the inputs that they meet in sample texts.

The float32 graph is run on the texts, and what each of its products takes is summed up as second
moments [K, K]. Those of a whole decoder would take more memory than its weights: they are measured
for some products at a time, in the order of the graph, which is run again for the next.
"""
# ruff: noqa: N806 - suffixes are array layouts: K inputs, N outputs of a product, S tokens

import hashlib
from collections.abc import Callable, Container, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from export.graphs.files import copy_of, settled
from export.graphs.graph import open_session
from export.graphs.tensors import bytes_of, key_of
from export.precision.blockwise import (
    BLOCK_SIZE,
    RoundColumns,
    is_product,
    with_products_as_matmul,
)
from export.precision.gptq import Compensation
from export.precision.samples import prompt_of

BITS = 4
MAX_BYTES = 2**30  # of second moments that are held at once; those of one product may take more


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
        self._inputs = [(activation, weight.dims[0]) for activation, weight in products]
        self._places = {_identity(weight): place for place, (_, weight) in enumerate(products)}
        [self._model] = settled([model])
        self._rows, self._on_step = rows, on_step
        self._max_bytes = max_bytes
        self._moments: dict[str, np.ndarray] = {}
        self._num_rounded = 0

    def __call__(self, weight: TensorProto) -> RoundColumns:
        """The rounding of columns of one of the graph's weights."""
        place = self._places[_identity(weight)]
        activation = self._inputs[place][0]
        if activation not in self._moments:
            self._moments = self._measured(place)
        self._num_rounded += 1
        self._on_step(f"rounding weights: product {self._num_rounded} of {len(self._inputs)}")
        return Compensation(self._moments[activation], BITS, BLOCK_SIZE).rounded

    def _measured(self, first: int) -> dict[str, np.ndarray]:
        """Second moments of a product's input, and of the next ones' while there is room."""
        moments: dict[str, np.ndarray] = {}
        num_bytes = 0
        for activation, num_inputs in self._inputs[first:]:
            num_bytes += 4 * num_inputs**2
            if moments and num_bytes > self._max_bytes:
                break
            moments[activation] = np.zeros((num_inputs, num_inputs), np.float32)
        session = open_session(_up_to(self._model, set(moments)))
        for done, row in enumerate(self._rows, start=1):
            feeds = prompt_of(row, session.signature.inputs, num_logits=len(row))
            for name, values in zip(moments, session.run(feeds, list(moments)), strict=True):
                values_SK = values.reshape(-1, values.shape[-1])
                moments[name] += values_SK.T @ values_SK
            self._on_step(f"measuring inputs of weights: {done} of {len(self._rows)} samples")
        return moments


def _identity(weight: TensorProto) -> str | bytes:
    """A value that is equal for equal weights, whatever they are called."""
    return key_of(weight) or hashlib.sha256(bytes_of(weight)).digest()


def _up_to(model: onnx.ModelProto, values: Container[str]) -> onnx.ModelProto:
    """A copy that gives some of a graph's values, without the nodes behind the last of them.

    Logits of all tokens of a text would take more time than the rest.
    """
    copied = copy_of(model)
    graph = copied.graph
    given = [
        (index, output)
        for index, node in enumerate(graph.node)
        for output in node.output
        if output in values
    ]
    del graph.node[given[-1][0] + 1 :], graph.output[:]
    graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for _, name in given
    )
    return copied
