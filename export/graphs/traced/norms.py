"""Norms of a network of transformers as one operator each.

The exporter takes an addition of 1e-8 for one of nothing, and so loses such an epsilon: a token of
zeros is then divided by zero. As an attribute of an operator it stays. A module is a norm by what
it computes, not by its name.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

NAMES = ("variance_epsilon", "eps", "epsilon", "norm_eps")
TOLERANCE = 1e-5
SIZES = (1.0, 1e-2, 1e-4)  # of trials: the smallest are where an epsilon is most of what is seen


class OneNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * weight, where weights may be stored less one."""

    def __init__(self, weight: Tensor, eps: float, plus: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach() + plus if plus else weight.detach())
        self.weight.requires_grad_(False)
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        return rms_norm(hidden, (self.weight.shape[-1],), self.weight, self.eps)


def as_one(module: nn.Module) -> OneNorm | None:
    """The module as one operator, where trials show that it is a root mean square norm."""
    parameters = list(module.named_parameters())
    eps = next((getattr(module, name) for name in NAMES if hasattr(module, name)), 0.0)
    if [name for name, _ in parameters] != ["weight"] or not isinstance(eps, float):
        return None
    weight = parameters[0][1]
    if (
        weight.dim() != 1
        or len(signature(module.forward).parameters) != 1
        or isinstance(module, nn.RMSNorm | nn.LayerNorm)
    ):
        return None
    generator = torch.Generator().manual_seed(0)
    trial = torch.randn(2, 3, len(weight), generator=generator)
    for plus in (0.0, 1.0):
        one = OneNorm(weight, eps, plus)
        with torch.inference_mode():
            try:
                are_same = all(_is_same(module, one, trial * size) for size in SIZES)
            except (RuntimeError, TypeError, IndexError):
                return None
        if are_same:
            return one
    return None


def _is_same(module: nn.Module, one: OneNorm, trial: Tensor) -> bool:
    expected, made = module(trial), one(trial)
    if not isinstance(expected, Tensor) or expected.shape != made.shape:
        return False
    limit = TOLERANCE * float(expected.abs().max())
    return bool((expected - made).abs().max() <= limit)


@contextmanager
def with_norms(network: nn.Module) -> Iterator[None]:
    """While entered, norms of the network are one operator each."""
    found = [
        (parent, name, one)
        for parent in network.modules()
        for name, child in parent.named_children()
        if (one := as_one(child)) is not None
    ]
    before = [(parent, name, getattr(parent, name)) for parent, name, _ in found]
    for parent, name, one in found:
        setattr(parent, name, one)
    try:
        yield
    finally:
        for parent, name, module in before:
            setattr(parent, name, module)
