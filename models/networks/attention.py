"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, sections 3.2.1 and 3.2.2).

Knows nothing about layers, positions or token ids. Stateless but for its weights, so any number of
threads may run it at once.

The one idea: every token asks with a query, the others answer with a key; their match, scaled by
1 / sqrt(Dh) and made to sum to one, says how much of each value to take. `attention_reference`
spells that out; `ScaledDotProductAttention` is the same in one fused call and is the only part that
an exporter replaces.

Masks are boolean and True means "may be looked at". A query that may look at nothing gets zeros,
never NaN: a NaN in an unused row would spread through the next layer (0 * NaN is NaN).
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S queries, T keys, H heads, Dh, D

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import SettingError
from models.networks.ropes import Rope, rotated


def attention_reference(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`softmax(Q K^T / sqrt(d_k)) V`, readable and slow; returns `(output, weights)`.

    query [..., S, Dh], key and value [..., T, Dh], mask broadcastable to [..., S, T]. A float mask
    is added to the scores, and minus infinity in it may not be looked at.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None and mask.is_floating_point():
        scores, mask = scores + mask, mask != -torch.inf
    visible = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.expand_as(scores)
    scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    largest = scores.amax(dim=-1, keepdim=True)  # exp() of what remains cannot overflow
    exponentials = torch.exp(scores - largest) * visible
    total = exponentials.sum(dim=-1, keepdim=True)
    weights = exponentials / total.where(total > 0, torch.ones_like(total))
    return weights @ value, weights


def padding_mask(lengths_B: Tensor, num_tokens: int) -> Tensor:
    """[B, num_tokens], True where a right-padded row has a real token."""
    return torch.arange(num_tokens, device=lengths_B.device) < lengths_B[:, None]


def causal_mask(num_tokens: int, device: torch.device | None = None) -> Tensor:
    """[S, S], True on and below the diagonal: a token sees itself and what came before."""
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=device).tril()


def mask_of_scores(mask: Tensor | None) -> Tensor | None:
    """A padding mask [B, T] for scores [B, H, S, T]; one of four dimensions is for them already.

    Where such a one is float it is added to the scores: relative positions, with minus infinity
    where a query may not look.
    """
    return mask[:, None, None, :] if mask is not None and mask.dim() == 2 else mask


def window_mask(num_tokens: int, window: int, device: torch.device | None = None) -> Tensor:
    """[S, S], True where two tokens are at most `window` apart."""
    place_S = torch.arange(num_tokens, device=device)
    return (place_S[:, None] - place_S).abs() <= window


class ScaledDotProductAttention(nn.Module):
    """The stateless core of attention: fused, masked, with dropout on the weights in training."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(
        self,
        query_BHSDh: Tensor,
        key_BHTDh: Tensor,
        value_BHTDh: Tensor,
        padding_mask_BT: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return [B, H, S, Dh]; `is_causal` is for self-attention, where S = T."""
        mask = mask_of_scores(padding_mask_BT)
        if mask is not None and is_causal:
            mask = mask & causal_mask(query_BHSDh.shape[-2], query_BHSDh.device)
        return F.scaled_dot_product_attention(
            query_BHSDh,
            key_BHTDh,
            value_BHTDh,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=is_causal and mask is None,
        )


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each on its own projection, by default of `hidden_size / H`.

    With a `rope`, queries and keys are rotated by their positions; with a `window`, a token sees
    those that are at most so far from it.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        head_size: int | None = None,
        bias: bool = True,
        rope: Rope | None = None,
        window: int = 0,
    ) -> None:
        super().__init__()
        if num_heads < 1 or (head_size is None and hidden_size % num_heads):
            raise SettingError("num_heads", num_heads, f"a divisor of hidden_size {hidden_size}")
        self.num_heads = num_heads
        self.head_size = head_size or hidden_size // num_heads
        size = num_heads * self.head_size
        self.query = nn.Linear(hidden_size, size, bias=bias)
        self.key = nn.Linear(hidden_size, size, bias=bias)
        self.value = nn.Linear(hidden_size, size, bias=bias)
        self.output = nn.Linear(size, hidden_size, bias=bias)
        self.rope, self.window = rope, window
        self.core: nn.Module = ScaledDotProductAttention(dropout)

    def forward(
        self,
        hidden_BSD: Tensor,
        padding_mask_BT: Tensor | None = None,
        is_causal: bool = False,
        memory_BTD: Tensor | None = None,
        relative: Tensor | None = None,
    ) -> Tensor:
        """Return [B, S, D]; with `memory_BTD` the keys and values come from there.

        What distances add to the scores comes of `relative`, see `added_scores`.
        """
        source_BTD = hidden_BSD if memory_BTD is None else memory_BTD
        query_BHSDh = self.split_heads(self.query(hidden_BSD))
        key_BHTDh = self.split_heads(self.key(source_BTD))
        mask, num_tokens = padding_mask_BT, hidden_BSD.shape[1]
        if self.rope is not None:
            tables = self.rope.tables(num_tokens, hidden_BSD.device)
            query_BHSDh = rotated(query_BHSDh, *tables).to(query_BHSDh.dtype)
            key_BHTDh = rotated(key_BHTDh, *tables).to(key_BHTDh.dtype)
        if self.window:
            near_SS = window_mask(num_tokens, self.window, hidden_BSD.device)
            visible = mask_of_scores(mask)
            mask = near_SS[None, None] if visible is None else visible & near_SS
        if relative is not None:
            bias = self.added_scores(query_BHSDh, key_BHTDh, relative).to(query_BHSDh.dtype)
            visible = mask_of_scores(mask)
            mask = bias if visible is None else bias.masked_fill(~visible, -torch.inf)
        context_BHSDh: Tensor = self.core(
            query_BHSDh,
            key_BHTDh,
            self.split_heads(self.value(source_BTD)),
            mask,
            is_causal,
        )
        output_BSD: Tensor = self.output(context_BHSDh.transpose(1, 2).flatten(2))
        return output_BSD

    def added_scores(self, query_BHSDh: Tensor, key_BHSDh: Tensor, relative: Tensor) -> Tensor:  # noqa: ARG002
        """[1 or B, H, S, S] from what distances give to all layers: here just that."""
        return relative

    def split_heads(self, projected_BTD: Tensor) -> Tensor:
        """[B, H, T, Dh]."""
        heads_BTHDh = torch.unflatten(projected_BTD, -1, (self.num_heads, self.head_size))
        return heads_BTHDh.transpose(1, 2)
