"""The pre-norm layer of GPT and of the Vision Transformer: normalise first, then attend or expand.

Knows nothing about what goes in or comes out of a network. The residual stream passes a layer
untouched but for what is added to it, which lets deep networks train without a warm-up (Radford
et al. 2019, section 2.3; Dosovitskiy et al. 2020, section 3.1).
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size

from typing import ClassVar

from torch import Tensor, nn

from models.attention import MultiHeadAttention
from models.feed_forward import FeedForward
from models.sizes import LayerSizes


class PreNormLayer(nn.Module):
    """Attention, then feed-forward: each on a normalised copy, added to the residual stream."""

    is_causal: ClassVar[bool] = False

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.attention = MultiHeadAttention(sizes.hidden_size, sizes.num_heads, sizes.dropout)
        self.feed_forward_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.feed_forward = FeedForward(
            sizes.hidden_size, sizes.intermediate_size, sizes.activation
        )
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, hidden_BSD: Tensor, padding_mask_BS: Tensor | None = None) -> Tensor:
        normed_BSD = self.attention_norm(hidden_BSD)
        attended_BSD = self.attention(normed_BSD, padding_mask_BS, self.is_causal)
        hidden_BSD = hidden_BSD + self.dropout(attended_BSD)
        expanded_BSD = self.feed_forward(self.feed_forward_norm(hidden_BSD))
        output_BSD: Tensor = hidden_BSD + self.dropout(expanded_BSD)
        return output_BSD
