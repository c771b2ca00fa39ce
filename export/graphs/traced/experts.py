"""Mixtures of experts as com.microsoft::MoE, where networks of transformers ask for them.

transformers has a register of functions for experts, as it has for attention. A layer chooses its
experts and their weights by itself, in whatever way: the operator is given the logarithm of these
weights, which its softmax turns into shares, and its output is multiplied by their sum. What the
gate computes is found by trial, as families write it in their own ways.

The CPU's kernel takes gated experts with gate and value interleaved.
"""

# ruff: noqa: N803, N806 - T tokens, D hidden size, E experts, K chosen, I intermediate size

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.graphs.traced.attention import asking
from export.graphs.traced.calls import NAME

OPERATOR = "MoE"
UNCHOSEN = -1e30  # logarithm of the weight of an expert that is not taken
TINY = 1e-30  # weights below have no logarithm that a float holds
TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Gate:
    """value' = gate * sigmoid(alpha * gate) * (value + beta), both cut at `limit` before."""

    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None
    is_interleaved: bool = False  # gate and value take turns in the stored weights

    def of(self, gate_value: Tensor) -> Tensor:
        gate, value = self.parts(gate_value)
        if self.limit is not None:
            gate, value = gate.clamp(max=self.limit), value.clamp(-self.limit, self.limit)
        return gate * torch.sigmoid(self.alpha * gate) * (value + self.beta)

    def parts(self, gate_value: Tensor) -> tuple[Tensor, Tensor]:
        if self.is_interleaved:
            return gate_value[..., ::2], gate_value[..., 1::2]
        first, second = gate_value.chunk(2, dim=-1)
        return first, second


def gate_of(module: Any) -> Gate:  # noqa: ANN401 - experts of transformers
    """The gate of these experts. Raises `ExportError` for one that the operator has not."""
    trial = 8 * torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    numbers = {
        name: float(value)
        for name in ("alpha", "limit", "swiglu_alpha", "swiglu_limit")
        if isinstance(value := getattr(module, name, None), int | float)
    }
    alphas = {1.0, *(numbers[n] for n in ("alpha", "swiglu_alpha") if n in numbers)}
    limits = {None, *(numbers[n] for n in ("limit", "swiglu_limit") if n in numbers)}
    with suppress(RuntimeError, TypeError, AttributeError), torch.inference_mode():
        made = module._apply_gate(trial)  # noqa: SLF001 - of transformers' interface
        for alpha in sorted(alphas):
            for limit in sorted(limits, key=str):
                for beta in (0.0, 1.0):
                    for is_interleaved in (False, True):
                        gate = Gate(alpha, beta, limit, is_interleaved)
                        expected = gate.of(trial)
                        error = (made - expected).abs().max() / made.abs().max()
                        if made.shape == expected.shape and error <= TOLERANCE:
                            return gate
    raise ExportError(
        f"the gate of {type(module).__name__} is none that {OPERATOR} computes: SiLU, or a sigmoid "
        "with a factor and limits"
    )


class OneNode(nn.Module):
    """All experts of a layer, with weights as the operator takes them."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - experts of transformers
        super().__init__()
        if not module.has_gate or module.has_post_expert_norm:
            what = "a norm behind them" if module.has_gate else "no gate"
            raise ExportError(
                f"experts of {type(module).__name__} have {what}, which {OPERATOR} has not"
            )
        self.gate = gate = gate_of(module)
        stored, second = module.gate_up_proj.detach(), module.down_proj.detach()
        if module.is_transposed:
            stored, second = stored.transpose(1, 2), second.transpose(1, 2)
        self.first = self._parameter(self._interleaved(stored.transpose(1, 2)).transpose(1, 2))
        self.second = self._parameter(second)
        biases = module.has_bias
        self.first_bias = (
            self._parameter(self._interleaved(module.gate_up_proj_bias.detach()))
            if biases
            else None
        )
        self.second_bias = self._parameter(module.down_proj_bias.detach()) if biases else None
        self.num_experts = stored.shape[0]
        self.options: dict[str, Any] = {
            "activation_type": "swiglu",
            "swiglu_fusion": 1,
            "activation_alpha": gate.alpha,
            "activation_beta": gate.beta,
            "normalize_routing_weights": 1,
        }
        if gate.limit is not None:
            self.options["swiglu_limit"] = gate.limit

    def _interleaved(self, stored: Tensor) -> Tensor:
        """Gate and value in turns along the last axis."""
        return torch.stack(self.gate.parts(stored), dim=-1).flatten(-2)

    @staticmethod
    def _parameter(tensor: Tensor) -> nn.Parameter:
        return nn.Parameter(tensor.contiguous(), requires_grad=False)

    def forward(self, hidden_TD: Tensor, index_TK: Tensor, weight_TK: Tensor) -> Tensor:
        weight_TK = weight_TK.float()
        empty_TE = hidden_TD.new_full((hidden_TD.shape[0], self.num_experts), UNCHOSEN)
        logarithm_TE = empty_TE.scatter(1, index_TK, weight_TK.clamp(min=TINY).log())
        inputs = [self.first, self.first_bias, self.second, self.second_bias]
        made_TD: Tensor = torch.onnx.ops.symbolic(
            f"com.microsoft::{OPERATOR}",
            [hidden_TD, logarithm_TE, *inputs],
            {"k": index_TK.shape[1], **self.options},
            dtype=hidden_TD.dtype,
            shape=hidden_TD.shape,
        )
        return made_TD * weight_TK.sum(dim=-1, keepdim=True)


def emitted(module: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:  # noqa: ANN401
    """The output of experts as one node: transformers calls this while a graph is traced."""
    made: Tensor = module.one_node(hidden, index, weights)
    return made


@contextmanager
def with_experts(network: nn.Module) -> Iterator[int]:
    """While entered, the network's experts are one node each; gives their number."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    found: list[Any] = [each for each in network.modules() if hasattr(each, "has_post_expert_norm")]
    ALL_EXPERTS_FUNCTIONS.register(NAME, emitted)
    try:
        for module in found:
            module.one_node = OneNode(module)
        with asking(found, "_experts_implementation"):
            yield len(found)
    finally:
        for module in found:
            if hasattr(module, "one_node"):
                del module.one_node
