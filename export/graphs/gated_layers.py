"""Parts of a Llama's layers as a graph has them: products of one input joined, tables of ropes.

Where weights are quantised, the input of joined products is rounded once.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden, I intermediate size

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from export.graphs.weightless import stacked
from models.networks.layers import GatedFeedForward
from models.networks.llama import GroupedAttentionCore, Llama
from models.networks.ropes import NO_ROPE, Rope


class RopeTables:
    """Cosines and sines, once for all layers that have the same rope."""

    def __init__(self, num_positions: int) -> None:
        self._num_positions = num_positions
        self._tables: dict[Rope, nn.ParameterList] = {}

    def of(self, rope: Rope | None) -> nn.ParameterList:
        """Two tables [positions, R / 2]; none without a rope."""
        if rope is None:
            return nn.ParameterList()
        if rope not in self._tables:
            tables = rope.tables(self._num_positions)
            parameters = [nn.Parameter(table, requires_grad=False) for table in tables]
            self._tables[rope] = nn.ParameterList(parameters)
        return self._tables[rope]


class PackedFeedForward(nn.Module):
    """A gated feed-forward layer whose first two products are one."""

    def __init__(self, feed_forward: GatedFeedForward) -> None:
        super().__init__()
        self.gate_expand = joined((feed_forward.gate, feed_forward.expand))
        self.contract = feed_forward.contract
        self.activation = feed_forward.activation

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        gate_BSI, expanded_BSI = self.gate_expand(hidden_BSD).chunk(2, dim=-1)
        output_BSD: Tensor = self.contract(self.activation(gate_BSI) * expanded_BSI)
        return output_BSD


def joined(parts: Sequence[nn.Linear]) -> nn.Linear:
    """Products of the same input as one."""
    weight = stacked([part.weight for part in parts])
    biases = [part.bias for part in parts if part.bias is not None]
    whole = nn.Linear(weight.shape[1], weight.shape[0], bias=bool(biases), device="meta")
    whole.weight = weight
    if biases:
        whole.bias = stacked(biases)
    return whole


def grouped_options(core: GroupedAttentionCore) -> dict[str, Any]:
    """Attributes of the operator that GPT's attention has not."""
    options: dict[str, Any] = {"scale": core.scale}
    if core.softcap:
        options["softcap"] = core.softcap
    if core.window:
        options["local_window_size"] = core.window
    if core.rope is not None:
        options["do_rotary"] = 1
    return options


def turned_channels(network: nn.Module) -> list[np.ndarray]:
    """Channels of a head that each one is turned into by the operator, layer by layer.

    A channel that is not turned has itself; empty for a network without ropes.
    """
    if not isinstance(network, Llama):
        return []
    turned = []
    for index in network.config.layer_ropes:
        pairs = 0 if index == NO_ROPE else len(network.config.ropes[index].inverse_frequencies)
        partners = np.arange(network.config.head_size)
        turned.append(
            np.concatenate([np.roll(partners[: 2 * pairs], pairs), partners[2 * pairs :]])
        )
    return turned
