"""SmoothQuant on a decoder's graph: channels that are far larger are divided at export.

Trained gated feed-forward layers have a few channels a hundred times larger than the others (Yang
et al. 2024, arXiv 2405.14428). int8 has one scale for all channels of a token, so they would leave
few steps to the rest. What gives a channel is divided by a factor, and the weights that take it are
multiplied by it (SmoothQuant, Xiao et al. 2022): a norm and the products that it feeds, the product
that is multiplied with a gate and the product behind. Factors are powers of two, so the float graph
computes the same bits.

Factors are chosen by the error of the rounded products on sample texts, and left at one where they
would gain little. Whose network it is does not matter: joints are found by the graph's pattern.
"""
# ruff: noqa: N803, N806, N815 - suffixes are array layouts: T tokens, K inputs, N outputs

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np
import onnx
import torch
from onnx import NodeProto
from torch import Tensor

from export.graphs.files import without_weights
from export.graphs.pieces import MAX_BYTES, Pieces
from export.graphs.tensors import Array, array_of, scaled
from export.precision.per_token import LARGEST
from export.precision.samples import prompt_of

STRENGTHS = (0.5, 0.65, 0.8, 1.0)  # how much of a channel's size moves into the weights
CHUNK_NUMBERS = 2**20  # of weights that are rounded at once
WORTH = 0.9  # of the error without factors: factors that leave more are not used
# Rows of sample texts, and tokens on which errors are compared; the largest values are of all rows.
SAMPLED, SAMPLED_OF_LARGE = (48, 512), (12, 128)
LARGE = 500_000_000  # weights of a network that has fewer samples, as each takes as much longer
LEAST = 1e-3  # of the largest channel: one that is 0 on the samples may not be on other texts
NORMS = ("RMSNormalization", "SimplifiedLayerNormalization", "LayerNormalization")
Factors = Sequence[Tensor | None]  # of each joint of a graph, in their order


@dataclass(frozen=True, slots=True)
class _Part:
    """Values of a weight: of a vector, or columns of a matrix [K, N]."""

    name: str
    values: slice


@dataclass(frozen=True, slots=True)
class _Joint:
    """An activation [.., K]: the weights that give it, channel by channel, and those that take it.

    Takers are matrices [K, N].
    """

    activation: str
    givers: tuple[_Part, ...]
    takers: tuple[str, ...]


@dataclass(slots=True)
class _Seen:
    """Values that passed a joint: the largest of each channel, and some tokens."""

    most: int  # tokens that are kept
    largest_K: Tensor | None = None
    tokens: list[Tensor] = field(default_factory=list)

    def add(self, activation: Array) -> None:
        values_TK = torch.from_numpy(activation).flatten(0, -2)
        largest_K = values_TK.abs().amax(dim=0)
        if self.largest_K is not None:
            largest_K = torch.maximum(self.largest_K, largest_K)
        self.largest_K = largest_K
        room = self.most - sum(len(each) for each in self.tokens)
        self.tokens.append(values_TK[:room].clone())


def factors_of(
    model: onnx.ModelProto,
    rows: Sequence[Sequence[int]],
    on_run: Callable[[int, int], None] = lambda *_: None,
    max_bytes: int = MAX_BYTES,
) -> Factors:
    """Factors of the joints of a float32 graph that lower int8's error on `rows` of token ids.

    The rows go through one piece of the graph after the other, so that of weights that stay in
    files those of one piece are in memory.
    """
    joints = list(_joints(model))
    if not joints:
        return ()
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    num_weights = sum(int(np.prod(tensor.dims)) for tensor in weights.values())
    num_rows, num_tokens = SAMPLED if num_weights <= LARGE else SAMPLED_OF_LARGE
    seen = {joint.activation: _Seen(num_tokens) for joint in joints}
    pieces, num_runs = Pieces(model, set(seen), max_bytes), count(1)
    feeds = [partial(prompt_of, row) for row in rows[:num_rows]]
    most = len(pieces) * len(feeds)
    best: dict[str, Tensor | None] = {}
    takers = {joint.activation: joint.takers for joint in joints}
    for given in pieces.run(
        feeds, lambda name, values: seen[name].add(values), lambda: on_run(next(num_runs), most)
    ):
        for name in given:
            of_takers = [torch.tensor(array_of(weights[each]).T) for each in takers[name]]
            best[name] = _best_factors(of_takers, seen.pop(name))
    return [best[joint.activation] for joint in joints]


def evened(model: onnx.ModelProto, factors: Factors) -> onnx.ModelProto:
    """A copy with the factors in its weights, which computes the same bits; else the graph itself.

    The graph may be another one of the same network than that whose factors they are.
    """
    joints = list(_joints(model)) if any(each is not None for each in factors) else []
    rows: dict[str, Array] = {}
    columns: dict[str, Array] = {}
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for joint, factors_K in zip(joints, factors if joints else (), strict=True):
        if factors_K is None:
            continue
        rows_K = factors_K.numpy()
        for part in joint.givers:
            size = weights[part.name].dims[-1]
            columns.setdefault(part.name, np.ones(size, np.float32))[part.values] /= rows_K
        for name in joint.takers:
            rows[name] = rows_K
    if not rows:
        return model
    changed = without_weights(model)
    changed.graph.initializer.extend(
        scaled(tensor, rows.get(tensor.name), columns.get(tensor.name))
        if tensor.name in rows or tensor.name in columns
        else tensor
        for tensor in model.graph.initializer
    )
    return changed


def _joints(model: onnx.ModelProto) -> Iterator[_Joint]:
    """The joints of a graph, in the order of the products that take them."""
    graph = model.graph
    sizes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    uses = Counter(name for node in graph.node for name in node.input)
    given = dict.fromkeys(
        node.input[0]
        for node in graph.node
        if node.op_type == "MatMul" and len(sizes.get(node.input[1], ())) == 2
    )
    for activation in given:
        products = readers[activation]
        takers = tuple(node.input[1] for node in products if len(node.input) > 1)
        are_products = all(
            node.op_type == "MatMul" and len(sizes.get(node.input[1], ())) == 2 and uses[name] == 1
            for node, name in zip(products, takers, strict=False)
        )
        maker = makers.get(activation)
        if maker is None or not are_products or len(takers) < len(products):
            continue
        parts = _given_by(maker, sizes, makers, uses)
        if parts and all(uses[part.name] == 1 for part in parts):
            yield _Joint(activation, parts, takers)


def _given_by(
    maker: NodeProto,
    sizes: dict[str, tuple[int, ...]],
    makers: dict[str, NodeProto],
    uses: Counter[str],
) -> tuple[_Part, ...]:
    """The weights that give the channels of what a node makes; none where it is no joint."""
    if maker.op_type in NORMS:
        weights = maker.input[1:]
        whole = all(len(sizes.get(name, ())) == 1 for name in weights)
        return tuple(_Part(name, slice(None)) for name in weights) if whole else ()
    if maker.op_type != "Mul":
        return ()
    for factor in maker.input:
        parts = _of_product(factor, sizes, makers, uses)
        if parts:
            return parts
    return ()


def _of_product(
    value: str, sizes: dict[str, tuple[int, ...]], makers: dict[str, NodeProto], uses: Counter[str]
) -> tuple[_Part, ...]:
    """The weights of a product, or of one half of it, that nothing else reads."""
    node, place, found = makers.get(value), None, list[_Part]()
    while node is not None and uses[value] == 1:
        if node.op_type == "Split" and place is None and len(node.output) == 2:
            place, value = list(node.output).index(value), node.input[0]
        elif node.op_type == "Add":
            biases = [name for name in node.input if len(sizes.get(name, ())) == 1]
            value = next((name for name in node.input if name not in biases), "")
            found += [_Part(name, _half(sizes[name][0], place)) for name in biases]
            if len(biases) != 1:
                return ()
        elif node.op_type == "MatMul" and len(sizes.get(node.input[1], ())) == 2:
            name = node.input[1]
            return (_Part(name, _half(sizes[name][1], place)), *found)
        else:
            return ()
        node = makers.get(value)
    return ()


def _half(size: int, place: int | None) -> slice:
    return slice(None) if place is None else slice(place * size // 2, (place + 1) * size // 2)


def _best_factors(takers: Sequence[Tensor], seen: _Seen) -> Tensor | None:
    """Factors of the least error; None where no factors are better."""
    assert seen.largest_K is not None, "all rows have passed"
    values_TK = torch.cat(seen.tokens)
    # Some outputs at a time, whose rounded weights a processor's cache holds.
    num_rows = max(1, CHUNK_NUMBERS // values_TK.shape[1])
    chunks = [chunk_NK for taker in takers for chunk_NK in torch.split(taker, num_rows)]
    products = [(chunk_NK, values_TK @ chunk_NK.T) for chunk_NK in chunks]
    largest_K = _lifted(seen.largest_K)
    weight_K = _lifted(torch.stack([chunk_NK.abs().amax(dim=0) for chunk_NK in chunks]).amax(dim=0))
    least = WORTH * _error(values_TK, products)
    best_K = None
    for strength in STRENGTHS:
        factors_K = _power_of_two(largest_K**strength / weight_K ** (1 - strength))
        error = _error(values_TK / factors_K, products, factors_K)
        if error < least:
            least, best_K = error, factors_K
    return best_K


def _error(
    values_TK: Tensor, products: Sequence[tuple[Tensor, Tensor]], factors_K: Tensor | None = None
) -> float:
    """The squared error of a product of rounded inputs, as a share of it, all tokens alike.

    `products` are weights [N, K], which factors multiply, and the exact product [T, N].
    """
    rounded_TK = _rounded(values_TK)
    size_T, off_T = torch.zeros(len(values_TK)), torch.zeros(len(values_TK))
    for weights_NK, exact_TN in products:
        lifted_NK = weights_NK if factors_K is None else weights_NK * factors_K
        off_T += (rounded_TK @ _rounded(lifted_NK).T - exact_TN).square().sum(dim=1)
        size_T += exact_TN.square().sum(dim=1)
    return float((off_T[size_T > 0] / size_T[size_T > 0]).mean())


def _rounded(values: Tensor) -> Tensor:
    """Each row to 127 steps on each side of zero, as `export/precision/per_token.py` does."""
    step = (
        values.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny) / LARGEST
    )
    return (values / step).round_().mul_(step)


def _power_of_two(factors_K: Tensor) -> Tensor:
    """Factors rounded to powers of two, whose geometric mean is about one."""
    exponents_K = factors_K.log2()
    return (exponents_K - exponents_K.mean()).round().exp2()


def _lifted(size_K: Tensor) -> Tensor:
    """Sizes of channels, of which none is below `LEAST` of the largest."""
    largest = float(size_K.max()) or 1.0
    return size_K.clamp_min(LEAST * largest)
