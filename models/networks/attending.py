"""Networks that show where they look: what they compute anyway, and every attention's weights.

The weights are those of `attention_reference`, softmax spelled out, in place of the fused call that
keeps them to itself; all else is the network's own, so its output is the same. What a head looks
at is what it took from; that is no reason for what the network says in the end (Jain & Wallace
2019; Wiegreffe & Pinter 2019).
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, L layers, H heads, S source or text
# tokens, T target tokens

import copy
from collections.abc import Collection
from typing import ClassVar

import torch
from torch import Tensor, nn

from models.errors import SettingError
from models.networks.attention import (
    MultiHeadAttention,
    attention_reference,
    causal_mask,
    mask_of_scores,
)
from models.networks.gpt import GPT
from models.networks.heads import TextNetwork
from models.networks.recurrent import RecurrentSeq2Seq
from models.networks.transformer import Transformer
from models.networks.vit import VisionTransformer

PIXELS = "pixel_values"
IDS, MASK, TYPES, TARGET = "input_ids", "attention_mask", "token_type_ids", "target_ids"


class ShownAttention(nn.Module):
    """The core of an attention, which appends its weights to a list; None discards them."""

    def __init__(self, shown: list[Tensor] | None) -> None:
        super().__init__()
        self._shown = shown

    def forward(
        self,
        query_BHSDh: Tensor,
        key_BHTDh: Tensor,
        value_BHTDh: Tensor,
        padding_mask_BT: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        """Like `ScaledDotProductAttention`, without dropout."""
        mask = mask_of_scores(padding_mask_BT)
        if is_causal:
            causal = causal_mask(query_BHSDh.shape[-2], query_BHSDh.device)
            mask = causal if mask is None else mask & causal
        output, weights = attention_reference(query_BHSDh, key_BHTDh, value_BHTDh, mask)
        if self._shown is not None:
            self._shown.append(weights)
        return output


class Attending(nn.Module):
    """A copy of a network with self-attention: weights [B, L, H, S, S] before its own output.

    Row s of a matrix says where token s looked.
    """

    has_target: ClassVar[bool] = False

    def __init__(self, network: nn.Module, inputs: Collection[str]) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).eval()
        self.inputs = tuple(inputs)
        self._shown: list[Tensor] = []
        for name, part in self.network.named_modules():
            if isinstance(part, MultiHeadAttention):
                part.core = ShownAttention(self._shown if self._is_shown(name) else None)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        self._shown.clear()
        output = self._output(*inputs)
        return torch.stack(self._shown, dim=1), output

    def _is_shown(self, name: str) -> bool:  # noqa: ARG002 - of a part of the network
        return True

    def _output(self, *inputs: Tensor) -> Tensor:
        output: Tensor = self.network(*inputs)
        return output


class AttendingToSource(Attending):
    """A Transformer that reads its output: weights [B, L, H, T, S] of the decoder over the source.

    Row t says where it looked before it wrote token t of the target. Its logits [B, T, V] are of
    those tokens.
    """

    has_target = True

    def __init__(self, network: Transformer) -> None:
        super().__init__(network, (IDS, MASK, TARGET))
        self._start_token_id = network.config.start_token_id

    def _is_shown(self, name: str) -> bool:
        return name.endswith("cross_attention")

    def _output(self, *inputs: Tensor) -> Tensor:
        *source, target_ids_BT = inputs
        return super()._output(*source, shifted_right(target_ids_BT, self._start_token_id))


class AttendingRecurrence(Attending):
    """A recurrent network that reads its output: the same with one layer and one head."""

    has_target = True

    def __init__(self, network: RecurrentSeq2Seq) -> None:
        super().__init__(network, (IDS, MASK, TARGET))

    def _output(self, *inputs: Tensor) -> Tensor:
        input_ids_BS, mask_BS, target_ids_BT = inputs
        network = self.network
        assert isinstance(network, RecurrentSeq2Seq)
        memory_BSD, state = network.encode(input_ids_BS, mask_BS)
        before_BT = shifted_right(target_ids_BT, network.config.start_token_id)
        decoded = network.decode(before_BT, memory_BSD, mask_BS, state)
        assert decoded.weights is not None, "it was asked when this was built"
        self._shown.append(decoded.weights[:, None])
        return decoded.logits


def shifted_right(target_ids_BT: Tensor, start_token_id: int) -> Tensor:
    """The decoder's earlier output for each token of the target."""
    start_B1 = torch.full_like(target_ids_BT[:, :1], start_token_id)
    return torch.cat([start_B1, target_ids_BT[:, :-1]], dim=1)


def attending(network: nn.Module) -> Attending:
    """The network, showing where it looks; `SettingError` for one that looks nowhere."""
    if isinstance(network, Transformer):
        return AttendingToSource(network)
    if isinstance(network, RecurrentSeq2Seq) and network.score is not None:
        if network.config.form == "bahdanau":
            limit = "absent: the plain export of Bahdanau's form answers with its attention"
            raise SettingError("task", "attention", limit)
        return AttendingRecurrence(network)
    if isinstance(network, VisionTransformer):
        return Attending(network, (PIXELS,))
    if isinstance(network, GPT):
        return Attending(network, (IDS,))
    if isinstance(network, TextNetwork) and network.num_attentions:
        return Attending(network, (IDS, MASK, TYPES) if network.has_token_types else (IDS, MASK))
    limit = f"absent: a {type(network).__name__} has no attention of tokens to show"
    raise SettingError("task", "attention", limit)
