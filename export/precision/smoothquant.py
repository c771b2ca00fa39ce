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
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from export.precision.per_token import LARGEST
from models.networks.llama import Llama, LlamaLayer

STRENGTHS = (0.5, 0.65, 0.8, 1.0)  # how much of a channel's size moves into the weights
WORTH = 0.9  # of the error without factors: what is above stays as it is
NUM_ROWS = 48  # of sample texts
NUM_TOKENS = 512  # on which errors are compared; the largest values are of all rows
LEAST = 1e-3  # of the largest channel: one that said nothing on the samples may yet


@dataclass(frozen=True, slots=True)
class _Joint:
    """An activation [.., K]: the weights that give it, channel by channel, and those that take it.

    `givers` have K as their first dimension.
    """

    givers: tuple[Tensor, ...]
    takers: tuple[nn.Linear, ...]


@dataclass(slots=True)
class _Seen:
    """Values that passed a joint: the largest of each channel, and some tokens."""

    largest_K: Tensor
    tokens: list[Tensor]

    def add(self, activation: Tensor) -> None:
        values_TK = activation.flatten(0, -2)
        torch.maximum(self.largest_K, values_TK.abs().amax(dim=0), out=self.largest_K)
        room = NUM_TOKENS - sum(len(each) for each in self.tokens)
        self.tokens.append(values_TK[:room].clone())


def evened(
    network: Llama,
    rows: Sequence[Sequence[int]],
    on_row: Callable[[int], None] = lambda _: None,
) -> Llama:
    """The network with factors where they lower int8's error on `rows` of token ids.

    It computes the same bits; the network itself, where no factor is worth it.
    """
    changed = copy.deepcopy(network).eval()
    joints = list(_joints(changed))
    num_folded = 0
    with torch.inference_mode():
        observed = _observe(changed, joints, rows[:NUM_ROWS], on_row)
        for joint, seen in zip(joints, observed, strict=True):
            factors_K = _best_factors(joint, seen)
            if factors_K is not None:
                _fold(joint, factors_K)
                num_folded += 1
    return changed if num_folded else network


def _joints(network: Llama) -> Iterator[_Joint]:
    for layer in network.layers:
        assert isinstance(layer, LlamaLayer)
        attention, feed_forward = layer.attention, layer.feed_forward
        if isinstance(layer.attention_norm, nn.RMSNorm):
            takers = attention.query, attention.key, attention.value
            yield _Joint((layer.attention_norm.weight,), takers)
        if isinstance(layer.feed_forward_norm, nn.RMSNorm):
            weight = layer.feed_forward_norm.weight
            yield _Joint((weight,), (feed_forward.gate, feed_forward.expand))
        expand = feed_forward.expand
        biases = () if expand.bias is None else (expand.bias,)
        yield _Joint((expand.weight, *biases), (feed_forward.contract,))


def _observe(
    network: Llama,
    joints: Sequence[_Joint],
    rows: Sequence[Sequence[int]],
    on_row: Callable[[int], None],
) -> list[_Seen]:
    observed, hooks = [], []
    for joint in joints:
        first = joint.takers[0]
        seen = _Seen(torch.zeros(first.in_features), [])
        observed.append(seen)
        hooks.append(first.register_forward_pre_hook(lambda _, given, seen=seen: seen.add(*given)))
    try:
        for done, row in enumerate(rows, start=1):
            network.hidden_states(torch.tensor([list(row)]))
            on_row(done)
    finally:
        for hook in hooks:
            hook.remove()
    return observed


def _best_factors(joint: _Joint, seen: _Seen) -> Tensor | None:
    """Factors of the least error; None where no factors are better."""
    values_TK = torch.cat(seen.tokens)
    weights_NK = torch.cat([taker.weight for taker in joint.takers])
    exact_TN = values_TK @ weights_NK.T
    largest_K, weight_K = _lifted(seen.largest_K), _lifted(weights_NK.abs().amax(dim=0))
    least = WORTH * _error(values_TK, weights_NK, exact_TN)
    best_K = None
    for strength in STRENGTHS:
        factors_K = _power_of_two(largest_K**strength / weight_K ** (1 - strength))
        error = _error(values_TK / factors_K, weights_NK * factors_K, exact_TN)
        if error < least:
            least, best_K = error, factors_K
    return best_K


def _error(values_TK: Tensor, weights_NK: Tensor, exact_TN: Tensor) -> float:
    """The squared error of a product of rounded inputs, as a share of it, all tokens alike."""
    off_TN = _rounded(values_TK) @ _rounded(weights_NK).T - exact_TN
    size_T = exact_TN.square().sum(dim=1)
    return float((off_TN.square().sum(dim=1)[size_T > 0] / size_T[size_T > 0]).mean())


def _rounded(values: Tensor) -> Tensor:
    """Each row to 127 steps on each side of zero, as `export/precision/per_token.py` does."""
    step = (
        values.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny) / LARGEST
    )
    return (values / step).round() * step


def _power_of_two(factors_K: Tensor) -> Tensor:
    """The nearest ones, whose geometric mean is about one."""
    exponents_K = factors_K.log2()
    return (exponents_K - exponents_K.mean()).round().exp2()


def _lifted(size_K: Tensor) -> Tensor:
    largest = float(size_K.max()) or 1.0
    return size_K.clamp_min(LEAST * largest)


def _fold(joint: _Joint, factors_K: Tensor) -> None:
    for giver in joint.givers:
        giver /= factors_K.view(-1, *[1] * (giver.dim() - 1))
    for taker in joint.takers:
        taker.weight *= factors_K
