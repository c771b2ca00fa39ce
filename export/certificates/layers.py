"""The first layer whose states differ between two networks that should compute the same."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from export.certificates.certificate import Pair

Run = Callable[[], Any]


def first_different_layer(
    ours: nn.Module, theirs: nn.Module, run_ours: Run, run_theirs: Run, limit: float
) -> str:
    """The layer as people count it; empty where the networks' layers cannot be set side by side."""
    sides = []
    for network, run in ((ours, run_ours), (theirs, run_theirs)):
        with _recorded(network) as states:
            run()
        sides.append(states)
    if len(sides[0]) != len(sides[1]) or not sides[0]:
        return ""
    for number, (our, their) in enumerate(zip(*sides, strict=True)):
        if our.numel() != their.numel():
            return ""
        pair = Pair("", our.flatten().numpy(), their.flatten().numpy())
        if not pair.difference <= limit:
            return f"the states of layer {number} of {len(sides[0])} are the first that differ"
    return "the states of all layers are the same, so it is what stands behind them"


@contextmanager
def _recorded(network: nn.Module) -> Iterator[list[Tensor]]:
    """Outputs of all layers, in the order in which they are computed, while this is entered."""
    states: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Any) -> None:  # noqa: ANN401
        first = output[0] if isinstance(output, tuple) else output
        states.append(first.detach().to(torch.float32).clone())

    hooks = [layer.register_forward_hook(keep) for layer in _layers_of(network)]
    try:
        yield states
    finally:
        for hook in hooks:
            hook.remove()


def _layers_of(network: nn.Module) -> list[nn.Module]:
    """Members of the outermost lists of modules."""
    found: list[nn.Module] = []
    inside: set[int] = set()
    for module in network.modules():
        if id(module) in inside:
            continue
        if isinstance(module, nn.ModuleList):
            found.extend(module)
            inside |= {id(each) for each in module.modules()}
    return found
