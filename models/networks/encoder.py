"""The BERT encoder: token ids in, the hidden states of every layer out.

Post-norm as in Devlin et al. 2018: normalise after adding the residual. RoBERTa and DistilBERT are
the same network with other sizes (see `models/checkpoints/huggingface.py`), so `EncoderConfig` is
all that tells them apart.

Knows nothing about tokenizers, heads or files. No branch depends on the contents of a tensor, so
the module exports with both B and S dynamic.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor, nn

from models.errors import check_range
from models.networks.attention import MultiHeadAttention
from models.networks.layers import (
    ACTIVATIONS,
    Config,
    FeedForward,
    LayerSizes,
    LearnedPositions,
    check_sizes,
)

INITIAL_STD = 0.02  # Devlin et al. 2018, as in every checkpoint of this family


@dataclass(frozen=True, slots=True)
class EncoderConfig(Config):
    """Sizes of an encoder; the defaults are BERT-base, uncased."""

    section: ClassVar = "encoder"

    vocab_size: int = 30_522
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3_072
    max_positions: int = 512  # longest row in tokens; the table has position_offset rows more
    type_vocab_size: int = 2  # 0: no token types, as in DistilBERT
    layer_norm_eps: float = 1e-12
    dropout: float = 0.1  # of hidden states and of attention weights
    activation: str = "gelu"
    position_offset: int = 0  # 2 in RoBERTa
    pad_token_id: int = 0

    def __post_init__(self) -> None:
        check_sizes(self, ACTIVATIONS)
        for name in ("type_vocab_size", "position_offset", "pad_token_id"):
            check_range(name, getattr(self, name), 0, float("inf"))

    @classmethod
    def base(cls) -> Self:
        """12 layers of 768 with 12 heads: 110 million weights."""
        return cls()

    @classmethod
    def large(cls) -> Self:
        """24 layers of 1024 with 16 heads: 340 million weights."""
        return cls(hidden_size=1_024, num_layers=24, num_heads=16, intermediate_size=4_096)


class Embeddings(nn.Module):
    """Word + position (+ token type), normalised."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.words = nn.Embedding(config.vocab_size, size)
        self.positions = LearnedPositions(config.max_positions, size, config.position_offset)
        self.token_types = (
            nn.Embedding(config.type_vocab_size, size) if config.type_vocab_size else None
        )
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids_BS: Tensor, token_type_ids_BS: Tensor | None = None) -> Tensor:
        """Without types every token is of type 0; a model that has none ignores them."""
        hidden_BSD: Tensor = self.words(input_ids_BS)
        if self.token_types is not None and token_type_ids_BS is None:
            hidden_BSD = hidden_BSD + self.token_types.weight[0]
        elif self.token_types is not None:
            hidden_BSD = hidden_BSD + self.token_types(token_type_ids_BS)
        hidden_BSD = hidden_BSD + self.positions(input_ids_BS.shape[1])
        normed_BSD: Tensor = self.dropout(self.norm(hidden_BSD))
        return normed_BSD


class EncoderLayer(nn.Module):
    """Attention, then feed-forward, each followed by dropout, residual and norm."""

    def __init__(self, config: LayerSizes) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(config.hidden_size, config.num_heads, config.dropout)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(
            config.hidden_size, config.intermediate_size, config.activation
        )
        self.output_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_BSD: Tensor, padding_mask_BS: Tensor) -> Tensor:
        attended_BSD = self.dropout(self.attention(hidden_BSD, padding_mask_BS))
        hidden_BSD = self.attention_norm(hidden_BSD + attended_BSD)
        expanded_BSD = self.dropout(self.feed_forward(hidden_BSD))
        output_BSD: Tensor = self.output_norm(hidden_BSD + expanded_BSD)
        return output_BSD


class Encoder(nn.Module):
    """Embeddings and L layers; rows are right-padded and at most `max_positions` long."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.apply(initialise)

    def forward(
        self,
        input_ids_BS: Tensor,
        attention_mask_BS: Tensor,
        token_type_ids_BS: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """L + 1 hidden states [B, S, D], the embeddings first.

        All inputs are int64; attention_mask is 1 for a real token and 0 for padding.
        """
        padding_mask_BS = attention_mask_BS != 0
        hidden_states = [self.embeddings(input_ids_BS, token_type_ids_BS)]
        for layer in self.layers:
            hidden_states.append(layer(hidden_states[-1], padding_mask_BS))
        return tuple(hidden_states)


def initialise(module: nn.Module) -> None:
    """Fresh weights as BERT starts: normal with deviation 0.02, biases zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
