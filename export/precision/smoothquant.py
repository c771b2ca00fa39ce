"""SmoothQuant for decoders of Llama's kind: channels that are far larger are divided at export.

Trained gated feed-forward layers have a few channels a hundred times larger than the others (Yang
et al. 2024, arXiv 2405.14428). int8 has one scale for all channels of a token, so they would leave
few steps to the rest. What gives a channel is divided by a factor, and the weights that take it are
multiplied by it (SmoothQuant, Xiao et al. 2022): rows of `expand` and columns of `contract`, norms
and what they feed. Factors are powers of two, so the float network computes the same bits.

Factors are chosen by the error of the rounded products on sample texts, and left at one where they
would gain little.
"""
# ruff: noqa: N803, N806, N815 - suffixes are array layouts: T tokens, K inputs, N outputs

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from export.precision.per_token import LARGEST
from models.checkpoints.lazy import LazyTensor, realise
from models.networks.llama import Llama, LlamaLayer

STRENGTHS = (0.5, 0.65, 0.8, 1.0)  # how much of a channel's size moves into the weights
CHUNK_NUMBERS = 2**20  # of weights that are rounded at once
WORTH = 0.9  # of the error without factors: factors that leave more are not used
# Rows of sample texts, and tokens on which errors are compared; the largest values are of all rows.
SAMPLED, SAMPLED_OF_LARGE = (48, 512), (12, 128)
LARGE = 500_000_000  # weights of a network that has fewer samples, as each takes as much longer
LEAST = 1e-3  # of the largest channel: one that is 0 on the samples may not be on other texts


@dataclass(frozen=True, slots=True)
class _Joint:
    """An activation [.., K]: the weights that give it, channel by channel, and those that take it.

    Weights are named within their layer; `givers` have K as their first dimension.
    """

    givers: tuple[str, ...]
    takers: tuple[str, ...]


@dataclass(slots=True)
class _Seen:
    """Values that passed a joint: the largest of each channel, and some tokens."""

    largest_K: Tensor
    most: int  # tokens that are kept
    tokens: list[Tensor] = field(default_factory=list)

    def add(self, activation: Tensor) -> None:
        values_TK = activation.flatten(0, -2)
        torch.maximum(self.largest_K, values_TK.abs().amax(dim=0), out=self.largest_K)
        room = self.most - sum(len(each) for each in self.tokens)
        self.tokens.append(values_TK[:room].clone())


def evened(
    network: Llama,
    rows: Sequence[Sequence[int]],
    on_layer: Callable[[int], None] = lambda _: None,
) -> Llama:
    """The network with factors where they lower int8's error on `rows` of token ids.

    It computes the same bits; the network itself, where no factor is worth it. The rows go through
    one layer after the other, so that of lazy weights one layer is in memory.
    """
    changed = copy.deepcopy(network).eval()
    num_weights = sum(weight.numel() for weight in network.parameters())
    num_rows, num_tokens = SAMPLED if num_weights <= LARGE else SAMPLED_OF_LARGE
    num_folded = 0
    with torch.inference_mode():
        states = [changed.embedded(torch.tensor([list(row)])) for row in rows[:num_rows]]
        for done, layer in enumerate(changed.layers, start=1):
            assert isinstance(layer, LlamaLayer)
            whole = copy.deepcopy(layer)
            realise(whole)
            joints = list(_joints(whole))
            states, observed = _observe(whole, joints, states, num_tokens)
            for joint, seen in zip(joints, observed, strict=True):
                factors_K = _best_factors(
                    [whole.get_parameter(name) for name in joint.takers], seen
                )
                if factors_K is not None:
                    _fold(layer, joint, factors_K)
                    num_folded += 1
            on_layer(done)
    return changed if num_folded else network


def _joints(layer: LlamaLayer) -> Iterator[_Joint]:
    if isinstance(layer.attention_norm, nn.RMSNorm):
        takers = tuple(f"attention.{part}.weight" for part in ("query", "key", "value"))
        yield _Joint(("attention_norm.weight",), takers)
    if isinstance(layer.feed_forward_norm, nn.RMSNorm):
        takers = "feed_forward.gate.weight", "feed_forward.expand.weight"
        yield _Joint(("feed_forward_norm.weight",), takers)
    biases = () if layer.feed_forward.expand.bias is None else ("feed_forward.expand.bias",)
    yield _Joint(("feed_forward.expand.weight", *biases), ("feed_forward.contract.weight",))


def _observe(
    layer: LlamaLayer, joints: Sequence[_Joint], states: Sequence[Tensor], num_tokens: int
) -> tuple[list[Tensor], list[_Seen]]:
    """The states of rows behind a layer, and what passed its joints."""
    observed, hooks = [], []
    for joint in joints:
        first = layer.get_submodule(joint.takers[0].removesuffix(".weight"))
        assert isinstance(first, nn.Linear)
        seen = _Seen(torch.zeros(first.in_features), num_tokens)
        observed.append(seen)
        hooks.append(first.register_forward_pre_hook(lambda _, given, seen=seen: seen.add(*given)))
    try:
        return [layer(hidden_1SD) for hidden_1SD in states], observed
    finally:
        for hook in hooks:
            hook.remove()


def _best_factors(takers: Sequence[Tensor], seen: _Seen) -> Tensor | None:
    """Factors of the least error; None where no factors are better."""
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


def _fold(layer: LlamaLayer, joint: _Joint, factors_K: Tensor) -> None:
    for name in joint.givers:
        _change(layer, name, lambda giver: giver / factors_K.view(-1, *[1] * (giver.dim() - 1)))
    for name in joint.takers:
        _change(layer, name, lambda taker: taker * factors_K)


def _change(layer: LlamaLayer, name: str, change: Callable[[Tensor], Tensor]) -> None:
    module, _, kind = name.rpartition(".")
    weight = layer.get_parameter(name)
    changed = weight.changed(change) if isinstance(weight, LazyTensor) else change(weight)
    setattr(layer.get_submodule(module), kind, nn.Parameter(changed, requires_grad=False))
