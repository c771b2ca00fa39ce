"""Rounds a decoder's weights to 4 bits for the inputs that they meet in sample texts.

The float32 graph is run on the texts, and what each of its products takes is summed up as second
moments [K, K]. Those of a whole decoder would take more memory than its weights: they are measured
for some products at a time, in the order of the graph, which is run again for the next.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: K inputs, N outputs of a product, S tokens

from collections.abc import Callable, Container, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.graphs.files import copy_of
from export.graphs.graph import open_session
from export.precision.blockwise import BLOCK_SIZE, is_product, with_products_as_matmul
from export.precision.gptq import Rounded, round_compensated
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
        self._products = [
            (node.input[0], numpy_helper.to_array(tensors[node.input[1]]))
            for node in plain.graph.node
            if is_product(node, tensors)
        ]
        self._model, self._rows, self._on_step = model, rows, on_step
        self._max_bytes = max_bytes
        self._moments: dict[str, np.ndarray] = {}
        self._num_rounded = 0

    def __call__(self, weights_KN: np.ndarray) -> Rounded:
        """Weights of one of the graph's products."""
        index = self._product_of(weights_KN)
        activation = self._products[index][0]
        if activation not in self._moments:
            self._moments = self._measured(index)
        self._num_rounded += 1
        self._on_step(f"rounding weights: product {self._num_rounded} of {len(self._products)}")
        return round_compensated(weights_KN, self._moments[activation], BITS, BLOCK_SIZE)

    def _product_of(self, weights_KN: np.ndarray) -> int:
        for index, (_, whole_KN) in enumerate(self._products):
            if np.array_equal(whole_KN, weights_KN):
                return index
        raise AssertionError("the graph has these weights")

    def _measured(self, first: int) -> dict[str, np.ndarray]:
        """Second moments of a product's input, and of the next ones' while there is room."""
        moments: dict[str, np.ndarray] = {}
        num_bytes = 0
        for activation, weights_KN in self._products[first:]:
            num_bytes += 4 * len(weights_KN) ** 2
            if moments and num_bytes > self._max_bytes:
                break
            moments[activation] = np.zeros((len(weights_KN), len(weights_KN)), np.float32)
        session = open_session(_up_to(self._model, set(moments)))
        for done, row in enumerate(self._rows, start=1):
            feeds = prompt_of(row, session.signature.inputs, num_logits=len(row))
            for name, values in zip(moments, session.run(feeds, list(moments)), strict=True):
                values_SK = values.reshape(-1, values.shape[-1])
                moments[name] += values_SK.T @ values_SK
            self._on_step(f"measuring inputs of weights: {done} of {len(self._rows)} samples")
        return moments


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
