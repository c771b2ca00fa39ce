"""Two linear maps with an activation between, applied to every token by itself.

Knows nothing about where in a network it stands: encoders and decoders use the same.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Expand, activate, contract (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, hidden_size: int, intermediate_size: int, activation: str) -> None:
        super().__init__()
        self.expand = nn.Linear(hidden_size, intermediate_size)
        self.contract = nn.Linear(intermediate_size, hidden_size)
        self.activation = ACTIVATIONS[activation]

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        output_BSD: Tensor = self.contract(self.activation(self.expand(hidden_BSD)))
        return output_BSD
