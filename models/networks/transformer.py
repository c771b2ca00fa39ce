"""The Transformer (Vaswani et al. 2017): one half reads a source, the other writes a target.

Post-norm, ReLU, sinusoidal positions, embeddings times sqrt(D), and one table of vectors for
source, target and output, which share a vocabulary (section 3.4). A layer of the decoder looks back
at its own tokens, then at the source. What Marian, BART and T5 do otherwise are fields of the
configuration: where norms stand and of which kind, positions, gates, biases, the output layer.

Knows nothing about tokenizers, files or search, and keeps no cache: `greedy` is the slow reference,
and the exported graphs the fast way.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S source and T target tokens,
# D hidden size, H heads, V vocabulary

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import check_choice, check_range
from models.networks.attention import MultiHeadAttention, causal_mask
from models.networks.layers import (
    ACTIVATIONS,
    Attend,
    Config,
    FeedForward,
    GatedFeedForward,
    LearnedPositions,
    SinusoidalPositions,
    check_size,
    check_sizes,
)
from models.networks.relative_positions import RelativePositions

Norm = Literal["layer", "rms"]
Placement = Literal["post", "pre"]  # of a layer's norms: behind each part, or before it
Positions = Literal["sinusoidal", "learned", "relative"]


@dataclass(frozen=True, slots=True)
class TransformerConfig(Config):
    """Sizes; the defaults are the paper's base model, 63 million weights."""

    section: ClassVar = "transformer"
    unnamed: ClassVar = {
        "num_decoder_layers": 0,
        "size_per_head": 0,
        "norm": "layer",
        "norm_placement": "post",
        "has_embedding_norms": False,
        "positions": "sinusoidal",
        "num_buckets": 0,
        "max_distance": 0,
        "scales_words": True,
        "has_biases": True,
        "is_gated": False,
        "is_tied": True,
        "has_output_bias": False,
        "first_token_ids": (),
        "banned_token_ids": (),
    }

    vocab_size: int = 37_000
    hidden_size: int = 512
    num_layers: int = 6  # of the encoder
    num_heads: int = 8
    intermediate_size: int = 2_048
    max_positions: int = 512  # longest source, and longest target, each with its end
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1  # of embeddings, attention weights and what joins the residual stream
    activation: str = "relu"
    pad_token_id: int = 0
    start_token_id: int = 1  # what the decoder is given before the first token
    end_token_id: int = 2  # ends source and target
    num_decoder_layers: int = 0  # 0: as many as the encoder has
    size_per_head: int = 0  # 0: hidden_size / num_heads
    norm: Norm = "layer"
    norm_placement: Placement = "post"  # with "pre", each half ends with a norm of its own
    has_embedding_norms: bool = False
    positions: Positions = "sinusoidal"  # learned and relative ones are each half's own
    num_buckets: int = 0  # of relative positions
    max_distance: int = 0  # of relative positions: farther is the same
    scales_words: bool = True  # by sqrt(hidden_size)
    has_biases: bool = True
    is_gated: bool = False  # the feed-forward layers
    is_tied: bool = True  # word vectors are the output layer
    has_output_bias: bool = False
    first_token_ids: tuple[int, ...] = ()  # what every output begins with
    banned_token_ids: tuple[int, ...] = ()  # what no output has

    def __post_init__(self) -> None:
        check_sizes(self, ACTIVATIONS, has_own_head_size=self.size_per_head > 0)
        for name in ("num_decoder_layers", "size_per_head"):
            check_size(name, getattr(self, name), 0)
        for name in ("pad_token_id", "start_token_id", "end_token_id"):
            check_range(name, getattr(self, name), 0, self.vocab_size - 1)
        for name in ("first_token_ids", "banned_token_ids"):
            for token_id in getattr(self, name):
                check_range(name, token_id, 0, self.vocab_size - 1)
        check_choice("norm", self.norm, get_args(Norm))
        check_choice("norm_placement", self.norm_placement, get_args(Placement))
        check_choice("positions", self.positions, get_args(Positions))
        if self.has_relative_positions:
            check_range("num_buckets", self.num_buckets, 4, float("inf"))
            check_range("max_distance", self.max_distance, self.num_buckets, float("inf"))

    @property
    def head_size(self) -> int:
        return self.size_per_head or self.hidden_size // self.num_heads

    @property
    def decoder_layers(self) -> int:
        return self.num_decoder_layers or self.num_layers

    @property
    def has_relative_positions(self) -> bool:
        return self.positions == "relative"

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


def _norm(config: TransformerConfig) -> nn.Module:
    if config.norm == "rms":
        return nn.RMSNorm(config.hidden_size, eps=config.layer_norm_eps)
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)


def _attention(config: TransformerConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.hidden_size,
        config.num_heads,
        config.dropout,
        head_size=config.head_size,
        bias=config.has_biases,
    )


def _feed_forward(config: TransformerConfig) -> nn.Module:
    kind = GatedFeedForward if config.is_gated else FeedForward
    sizes = config.hidden_size, config.intermediate_size
    return kind(*sizes, config.activation, bias=config.has_biases)


class _Layer(nn.Module):
    """The parts of a layer, each with a residual and a norm behind it, or before it."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.is_pre_norm = config.norm_placement == "pre"
        self.dropout = nn.Dropout(config.dropout)

    def added(self, part: Attend, norm: nn.Module, hidden: Tensor) -> Tensor:
        """Output of a part, added to its input."""
        if self.is_pre_norm:
            stream: Tensor = hidden + self.dropout(part(norm(hidden)))
            return stream
        output: Tensor = norm(hidden + self.dropout(part(hidden)))
        return output


class SourceLayer(_Layer):
    """Self-attention and feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.attention = _attention(config)
        self.attention_norm = _norm(config)
        self.feed_forward = _feed_forward(config)
        self.output_norm = _norm(config)  # of the feed-forward part

    def forward(self, hidden_BSD: Tensor, mask: Any) -> Tensor:  # noqa: ANN401
        """The mask is what the attention takes: an exporter gives its own."""

        def attend(states_BSD: Tensor) -> Tensor:
            attended_BSD: Tensor = self.attention(states_BSD, mask)
            return attended_BSD

        hidden_BSD = self.added(attend, self.attention_norm, hidden_BSD)
        return self.added(self.feed_forward, self.output_norm, hidden_BSD)


class DecoderLayer(_Layer):
    """Masked self-attention, attention to the source, feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.attention = _attention(config)
        self.attention_norm = _norm(config)
        self.cross_attention = _attention(config)
        self.cross_attention_norm = _norm(config)
        self.feed_forward = _feed_forward(config)
        self.output_norm = _norm(config)  # of the feed-forward part

    def forward(
        self,
        hidden_BTD: Tensor,
        memory_BSD: Tensor,
        source_mask_BS: Tensor,
        scores: Tensor | None = None,
    ) -> Tensor:
        """Targets are right-padded: what pads a row comes after all that is used.

        `scores` are of relative positions, and hide what comes later.
        """

        def attend(states_BTD: Tensor) -> Tensor:
            attended_BTD: Tensor = self.attention(states_BTD, scores, is_causal=scores is None)
            return attended_BTD

        def cross(states_BTD: Tensor) -> Tensor:
            crossed_BTD: Tensor = self.cross_attention(
                states_BTD, source_mask_BS, memory_BTD=memory_BSD
            )
            return crossed_BTD

        return self.around(attend, cross, hidden_BTD)

    def around(self, attend: Attend, cross: Attend, hidden_BTD: Tensor) -> Tensor:
        """The layer around other attentions than its own."""
        hidden_BTD = self.added(attend, self.attention_norm, hidden_BTD)
        hidden_BTD = self.added(cross, self.cross_attention_norm, hidden_BTD)
        return self.added(self.feed_forward, self.output_norm, hidden_BTD)


class Transformer(nn.Module):
    """Encoder, decoder and the one table of word vectors that both use, and often the output."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.words = nn.Embedding(config.vocab_size, size)
        self.positions = self._positions(is_two_way=True)
        is_shared = config.positions == "sinusoidal"
        self.target_positions = self.positions if is_shared else self._positions(is_two_way=False)
        has_norms, is_pre_norm = config.has_embedding_norms, config.norm_placement == "pre"
        self.words_norm = _norm(config) if has_norms else nn.Identity()
        self.target_words_norm = _norm(config) if has_norms else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(SourceLayer(config) for _ in range(config.num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder_norm = _norm(config) if is_pre_norm else nn.Identity()
        self.decoder_norm = _norm(config) if is_pre_norm else nn.Identity()
        self.output = None if config.is_tied else nn.Linear(size, config.vocab_size, bias=False)
        bias = torch.zeros(config.vocab_size) if config.has_output_bias else None
        self.output_bias = None if bias is None else nn.Parameter(bias)
        self.apply(_initialise)

    def _positions(self, *, is_two_way: bool) -> nn.Module:
        config = self.config
        if config.positions == "relative":
            return RelativePositions(
                config.num_buckets, config.max_distance, config.num_heads, is_two_way=is_two_way
            )
        kind = LearnedPositions if config.positions == "learned" else SinusoidalPositions
        return kind(config.max_positions, config.hidden_size)

    def embed(self, input_ids: Tensor) -> Tensor:
        """[B, S, D] of a source."""
        return self._embedded(input_ids, self.positions, self.words_norm)

    def embed_target(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """[B, T, D] of a target; positions count from 0 where none are given."""
        return self._embedded(
            input_ids, self.target_positions, self.target_words_norm, position_ids
        )

    def _embedded(
        self,
        input_ids: Tensor,
        positions: nn.Module,
        norm: nn.Module,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Word vectors, times sqrt(D) so that positions do not drown them."""
        hidden: Tensor = self.words(input_ids)
        if self.config.scales_words:
            hidden = hidden * math.sqrt(self.config.hidden_size)
        if not self.config.has_relative_positions:
            if position_ids is None:
                position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)
            hidden = hidden + positions.at(position_ids)  # type: ignore[operator]
        embedded: Tensor = self.dropout(norm(hidden))
        return embedded

    def source_mask(self, attention_mask_BS: Tensor) -> Tensor:
        """The mask of the encoder's attentions: bool [B, S], or scores [B, H, S, S] to add."""
        is_token_BS = attention_mask_BS != 0
        if not self.config.has_relative_positions:
            return is_token_BS
        places_S = torch.arange(is_token_BS.shape[1], device=is_token_BS.device)
        added_1HSS: Tensor = self.positions(places_S[None], places_S)
        return added_1HSS.masked_fill(~is_token_BS[:, None, None, :], -torch.inf)

    def target_scores(self, num_tokens: int, device: torch.device) -> Tensor | None:
        """[1, H, T, T] to add to scores, later tokens hidden; None without relative positions."""
        if not self.config.has_relative_positions:
            return None
        places_T = torch.arange(num_tokens, device=device)
        added_1HTT: Tensor = self.target_positions(places_T[None], places_T)
        return added_1HTT.masked_fill(~causal_mask(num_tokens, device), -torch.inf)

    def encode(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """The encoder's output [B, S, D]; the mask is 1 for a real token, 0 for padding."""
        hidden_BSD, mask = self.embed(input_ids_BS), self.source_mask(attention_mask_BS)
        for layer in self.encoder:
            hidden_BSD = layer(hidden_BSD, mask)
        memory_BSD: Tensor = self.encoder_norm(hidden_BSD)
        return memory_BSD

    def decode(self, target_ids_BT: Tensor, memory_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """The decoder's hidden states [B, T, D]."""
        hidden_BTD = self.embed_target(target_ids_BT)
        scores = self.target_scores(target_ids_BT.shape[1], target_ids_BT.device)
        for layer in self.decoder:
            hidden_BTD = layer(hidden_BTD, memory_BSD, mask_BS != 0, scores)
        normed_BTD: Tensor = self.decoder_norm(hidden_BTD)
        return normed_BTD

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] for hidden states [..., D]."""
        table_VD = self.words.weight if self.output is None else self.output.weight
        logits = F.linear(hidden, table_VD)
        return logits if self.output_bias is None else logits + self.output_bias

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
        for step in range(num_steps):
            last_BD = self.decode(written_BT, memory_BSD, attention_mask_BS)[:, -1]
            logits_BV = self.logits(last_BD)
            logits_BV[:, list(config.banned_token_ids)] = -torch.inf
            likeliest_B = logits_BV.argmax(dim=-1)
            if step < len(config.first_token_ids):
                likeliest_B = torch.full_like(likeliest_B, config.first_token_ids[step])
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
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
