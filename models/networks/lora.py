"""Linear maps that learn a product of two small matrices while they stay as they are.

W x + s B A x, with A [r, in] random and B [out, r] zero at first, so that training begins with
what the network is (Hu et al. 2021). Knows nothing about files, or which maps are adapted.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LoraLinear(nn.Linear):
    """A linear map with the weights of another, and the factors that are added to it."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        has_bias = base.bias is not None
        super().__init__(base.in_features, base.out_features, bias=has_bias, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.scale = alpha / rank
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))  # as PEFT begins

    def forward(self, inputs: Tensor) -> Tensor:
        added = F.linear(F.linear(inputs, self.lora_A), self.lora_B)
        return super().forward(inputs) + self.scale * added


def adapt(model: nn.Module, names: Iterable[str], rank: int, alpha: float) -> None:
    """Give the linear maps of these names factors, in place."""
    for name in names:
        parent, _, last = name.rpartition(".")
        linear = model.get_submodule(name)
        assert isinstance(linear, nn.Linear), f"{name} is a linear map"
        setattr(model.get_submodule(parent), last, LoraLinear(linear, rank, alpha))


def adapted_maps(model: nn.Module) -> dict[str, LoraLinear]:
    """The adapted linear maps by their names; none in a network without adapters."""
    modules = model.named_modules()
    return {name: module for name, module in modules if isinstance(module, LoraLinear)}


def learn_factors_alone(body: nn.Module) -> None:
    """Let all weights of a network stay as they are but the factors."""
    body.requires_grad_(False)
    for linear in adapted_maps(body).values():
        linear.lora_A.requires_grad_(True)
        linear.lora_B.requires_grad_(True)
