"""The Transformer (Vaswani et al. 2017): one half reads a source, the other writes a target.

Post-norm, ReLU, sinusoidal positions, embeddings times sqrt(D), and one table of vectors for
source, target and output, which share a vocabulary (section 3.4). Attention and the encoder's
layers are those of BERT; a layer of the decoder looks back at its own tokens, then at the source.

Knows nothing about tokenizers, files or search, and keeps no cache: `greedy` is the slow reference,
and the exported graphs the fast way.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S source and T target tokens,
# D hidden size, V vocabulary

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import check_range
from models.networks.attention import MultiHeadAttention
from models.networks.encoder import EncoderLayer
from models.networks.layers import (
    ACTIVATIONS,
    Config,
    FeedForward,
    SinusoidalPositions,
    check_sizes,
)


@dataclass(frozen=True, slots=True)
class TransformerConfig(Config):
    """Sizes; the defaults are the paper's base model, 63 million weights."""

    section: ClassVar = "transformer"

    vocab_size: int = 37_000
    hidden_size: int = 512
    num_layers: int = 6  # of the encoder, and as many of the decoder
    num_heads: int = 8
    intermediate_size: int = 2_048
    max_positions: int = 512  # longest source, and longest target, each with its end
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1  # of embeddings, attention weights and what joins the residual stream
    activation: str = "relu"
    pad_token_id: int = 0
    start_token_id: int = 1  # what the decoder is given before the first token
    end_token_id: int = 2  # ends source and target

    def __post_init__(self) -> None:
        check_sizes(self, ACTIVATIONS)
        for name in ("pad_token_id", "start_token_id", "end_token_id"):
            check_range(name, getattr(self, name), 0, self.vocab_size - 1)

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @classmethod
    def published(cls) -> Self:
        """6 + 6 layers of 512 with 8 heads."""
        return cls()

    @classmethod
    def small(cls) -> Self:
        """2 + 2 layers of 128 with 4 heads: 0.7 million weights, for minutes on a processor."""
        return cls(
            vocab_size=512,
            hidden_size=128,
            num_layers=2,
            num_heads=4,
            intermediate_size=256,
            max_positions=64,
        )


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, feed-forward: each with residual and norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        size, heads, eps = config.hidden_size, config.num_heads, config.layer_norm_eps
        self.attention = MultiHeadAttention(size, heads, config.dropout)
        self.attention_norm = nn.LayerNorm(size, eps=eps)
        self.cross_attention = MultiHeadAttention(size, heads, config.dropout)
        self.cross_attention_norm = nn.LayerNorm(size, eps=eps)
        self.feed_forward = FeedForward(size, config.intermediate_size, config.activation)
        self.output_norm = nn.LayerNorm(size, eps=eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_BTD: Tensor, memory_BSD: Tensor, source_mask_BS: Tensor) -> Tensor:
        """Targets are right-padded: what pads a row comes after all that is used."""
        attended_BTD = self.attention(hidden_BTD, is_causal=True)
        hidden_BTD = self.attention_norm(hidden_BTD + self.dropout(attended_BTD))
        crossed_BTD = self.cross_attention(hidden_BTD, source_mask_BS, memory_BTD=memory_BSD)
        hidden_BTD = self.cross_attention_norm(hidden_BTD + self.dropout(crossed_BTD))
        expanded_BTD = self.feed_forward(hidden_BTD)
        output_BTD: Tensor = self.output_norm(hidden_BTD + self.dropout(expanded_BTD))
        return output_BTD


class Transformer(nn.Module):
    """Encoder, decoder and the one table of word vectors that both and the output layer use."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = SinusoidalPositions(config.max_positions, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.apply(_initialise)

    def embed(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """[B, S, D]: word vectors times sqrt(D), so that positions do not drown them.

        Positions count from 0 where none are given.
        """
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)
        scaled = self.words(input_ids) * math.sqrt(self.config.hidden_size)
        embedded: Tensor = self.dropout(scaled + self.positions.at(position_ids))
        return embedded

    def encode(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """The encoder's output [B, S, D]; the mask is 1 for a real token, 0 for padding."""
        hidden_BSD = self.embed(input_ids_BS)
        for layer in self.encoder:
            hidden_BSD = layer(hidden_BSD, attention_mask_BS != 0)
        return hidden_BSD

    def decode(self, target_ids_BT: Tensor, memory_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """The decoder's hidden states [B, T, D]."""
        hidden_BTD = self.embed(target_ids_BT)
        for layer in self.decoder:
            hidden_BTD = layer(hidden_BTD, memory_BSD, mask_BS != 0)
        return hidden_BTD

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] for hidden states [..., D]."""
        return F.linear(hidden, self.words.weight)

    def forward(
        self, input_ids_BS: Tensor, attention_mask_BS: Tensor, target_ids_BT: Tensor
    ) -> Tensor:
        """Logits [B, T, V] of each next token; targets begin with the start token. All int64."""
        memory_BSD = self.encode(input_ids_BS, attention_mask_BS)
        return self.logits(self.decode(target_ids_BT, memory_BSD, attention_mask_BS))

    @torch.inference_mode()
    def greedy(
        self, input_ids_BS: Tensor, attention_mask_BS: Tensor, num_steps: int
    ) -> tuple[Tensor, None]:
        """The likeliest token at each of `num_steps` steps [B, T], padding after the end.

        Each step computes the whole target again; none is left where all rows have ended.
        """
        config = self.config
        memory_BSD = self.encode(input_ids_BS, attention_mask_BS)
        written_BT = torch.full_like(input_ids_BS[:, :1], config.start_token_id)
        is_open_B = torch.ones_like(written_BT[:, 0])
        for _ in range(num_steps):
            last_BD = self.decode(written_BT, memory_BSD, attention_mask_BS)[:, -1]
            likeliest_B = self.logits(last_BD).argmax(dim=-1)
            chosen_B = likeliest_B.where(is_open_B != 0, config.pad_token_id)
            written_BT = torch.cat([written_BT, chosen_B[:, None]], dim=1)
            is_open_B = is_open_B * (chosen_B != config.end_token_id)
            if not is_open_B.any():
                break
        num_left = num_steps + 1 - written_BT.shape[1]
        return F.pad(written_BT[:, 1:], (0, num_left), value=config.pad_token_id), None


def _initialise(module: nn.Module) -> None:
    """Glorot's uniform for maps; word vectors have length one, sqrt(D) once scaled."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
