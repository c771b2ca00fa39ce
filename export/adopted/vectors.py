"""One vector of a text, of the vectors of its tokens: pooling, maps, and length 1, as nodes.

Sums are products with a row of weights, so that no node depends on the opset. All is computed in
float32. The same in NumPy is `reference.py`. Imports no PyTorch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from export.adopted.editing import Editor
from models.choices import POOLINGS, TOGETHER

LEAST_LENGTH = 1e-12  # of a vector that is divided by its own, as PyTorch's normalize has it
NORM_EPS = 1e-5  # of a layer norm, as PyTorch has it


@dataclass(frozen=True, slots=True, eq=False)
class VectorMap:
    """A linear map with an activation, or a norm of the values; weights are float32."""

    activation: str = "identity"
    weight: np.ndarray | None = None  # [out, in]; None: a norm
    bias: np.ndarray | None = None
    residual: np.ndarray | None = None  # [out, in], of what is added
    adds_input: bool = False
    scale: np.ndarray | None = None  # of a norm


@dataclass(frozen=True, slots=True)
class VectorUse:
    """The way from the vectors of tokens to that of a text."""

    pooling: str
    maps: Sequence[VectorMap] = ()
    normalize: bool = False


def text_vector(editor: Editor, states_BSD: str, mask_BS: str, use: VectorUse) -> str:  # noqa: N803 - layouts
    """The value of the vectors, [B, D], of hidden states and the mask of tokens."""
    states, mask = editor.floating(states_BSD), editor.floating(mask_BS)
    parts = [POOLS[name](editor, states, mask) for name in use.pooling.split(TOGETHER)]
    vector = parts[0] if len(parts) == 1 else editor.add("Concat", *parts, axis=1)
    for each in use.maps:
        vector = mapped(editor, vector, each)
    return normalized(editor, vector) if use.normalize else vector


def normalized(editor: Editor, vector: str) -> str:
    """Vectors of length 1; one of zeros stays."""
    row, column = editor.reshape(vector, 0, 1, -1), editor.reshape(vector, 0, -1, 1)
    square = editor.reshape(editor.add("MatMul", row, column), -1, 1)
    length = editor.add("Sqrt", square)
    least = editor.constant(np.array([LEAST_LENGTH], np.float32))
    return editor.add("Div", vector, editor.add("Max", length, least))


def mapped(editor: Editor, vector: str, each: VectorMap) -> str:
    """The value of vectors behind a map."""
    if each.weight is None:
        return _norm(editor, vector, each)
    product = editor.add("MatMul", vector, editor.constant(each.weight.T.copy()))
    if each.bias is not None:
        product = editor.add("Add", product, editor.constant(each.bias))
    product = ACTIVATIONS[each.activation](editor, product)
    if not each.adds_input:
        return product
    if each.residual is not None:
        vector = editor.add("MatMul", vector, editor.constant(each.residual.T.copy()))
    return editor.add("Add", product, vector)


def _norm(editor: Editor, vector: str, each: VectorMap) -> str:
    assert each.scale is not None, "a map has a weight or a scale"
    size = len(each.scale)
    average = editor.constant(np.full((size, 1), 1 / size, np.float32))
    centred = editor.add("Sub", vector, editor.add("MatMul", vector, average))
    variance = editor.add("MatMul", editor.add("Mul", centred, centred), average)
    safe = editor.add("Add", variance, editor.constant(np.array([NORM_EPS], np.float32)))
    scaled = editor.add("Div", centred, editor.add("Sqrt", safe))
    scaled = editor.add("Mul", scaled, editor.constant(each.scale))
    return scaled if each.bias is None else editor.add("Add", scaled, editor.constant(each.bias))


def _gelu(editor: Editor, value: str) -> str:
    half, root = (editor.constant(np.array(n, np.float32)) for n in (0.5, 2**-0.5))
    one = editor.constant(np.array(1, np.float32))
    share = editor.add("Add", editor.add("Erf", editor.add("Mul", value, root)), one)
    return editor.add("Mul", editor.add("Mul", value, half), share)


def _first(editor: Editor, states: str, _mask: str) -> str:
    return editor.add("Gather", states, editor.constant(np.array(0, np.int64)), axis=1)


def _mean(editor: Editor, states: str, mask: str) -> str:
    return _divided(editor, states, mask, mask, lambda count: count)


def _sum_by_root(editor: Editor, states: str, mask: str) -> str:
    return _divided(editor, states, mask, mask, lambda count: editor.add("Sqrt", count))


def _weighted_mean(editor: Editor, states: str, mask: str) -> str:
    places = editor.add("Mul", _places(editor, mask), mask)
    return _divided(editor, states, places, mask, lambda count: count)


def _last(editor: Editor, states: str, mask: str) -> str:
    places, count = _places(editor, mask), _sum(editor, mask, mask)
    is_last = editor.add("Equal", places, editor.reshape(count, -1, 1))
    weights = editor.add("Mul", editor.floating(is_last), mask)
    return _weighed(editor, states, weights)


def _largest(editor: Editor, states: str, mask: str) -> str:
    is_padding = editor.add("Sub", editor.constant(np.array(1, np.float32)), mask)
    far = editor.constant(np.array(-1e30, np.float32))
    lowered = editor.reshape(editor.add("Mul", is_padding, far), 0, -1, 1)
    return editor.largest(editor.add("Add", states, lowered), axis=1)


def _places(editor: Editor, mask: str) -> str:
    """The place of each token in its text, from 1; float32 [B, S]."""
    return editor.add("CumSum", mask, editor.constant(np.array(1, np.int64)))


def _weighed(editor: Editor, states: str, weights: str) -> str:
    """The sum of the states by weights [B, S]: [B, D]."""
    product = editor.add("MatMul", editor.reshape(weights, 0, 1, -1), states)
    return editor.reshape(product, 0, -1)


def _sum(editor: Editor, weights: str, mask: str) -> str:
    """The sum of weights [B, S] over tokens: [B, 1]."""
    row, column = editor.reshape(weights, 0, 1, -1), editor.reshape(mask, 0, -1, 1)
    return editor.reshape(editor.add("MatMul", row, column), -1, 1)


def _divided(editor: Editor, states: str, weights: str, mask: str, by: Callable[[str], str]) -> str:
    """Weighed states, divided by what is made of the sum of the weights."""
    least = editor.constant(np.array([1], np.float32))
    total = editor.add("Max", _sum(editor, weights, mask), least)
    return editor.add("Div", _weighed(editor, states, weights), by(total))


POOLS: Mapping[str, Callable[[Editor, str, str], str]] = {
    "mean": _mean,
    "cls": _first,
    "last": _last,
    "max": _largest,
    "mean_sqrt_len_tokens": _sum_by_root,
    "weightedmean": _weighted_mean,
}
assert tuple(POOLS) == POOLINGS, "every pooling of the command line has its nodes"
ACTIVATIONS: Mapping[str, Callable[[Editor, str], str]] = {
    "identity": lambda _editor, value: value,
    "tanh": lambda editor, value: editor.add("Tanh", value),
    "sigmoid": lambda editor, value: editor.add("Sigmoid", value),
    "relu": lambda editor, value: editor.add("Relu", value),
    "gelu": _gelu,
    "silu": lambda editor, value: editor.add("Mul", value, editor.add("Sigmoid", value)),
}
