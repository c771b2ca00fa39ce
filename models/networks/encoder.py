"""The BERT encoder, and what came after it: token ids in, the hidden states of every layer out.

Post-norm as in Devlin et al. 2018: normalise after adding the residual. RoBERTa and DistilBERT are
the same network with other sizes; ModernBERT (Warner et al. 2024), Nomic, GTE, ELECTRA, ALBERT,
MPNet and DeBERTa have other fields of `EncoderConfig`, which is all that tells them apart. What
differs otherwise is folded into the weights on import (`models/checkpoints/families`).

Knows nothing about tokenizers, heads or files. No branch depends on the contents of a tensor, so
the module exports with both B and S dynamic.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn

from models.errors import SettingError, check_choice, check_range
from models.networks.attention import MultiHeadAttention
from models.networks.disentangled import DisentangledAttention, Distances, DistanceVectors
from models.networks.layers import (
    ACTIVATIONS,
    Attend,
    Config,
    FeedForward,
    GatedFeedForward,
    LayerSizes,
    LearnedPositions,
    check_size,
    check_sizes,
)
from models.networks.relative_positions import RelativePositions
from models.networks.ropes import NO_ROPE, Rope

INITIAL_STD = 0.02  # Devlin et al. 2018, as in every checkpoint of this family
MAX_DISTANCE = 128  # tokens, of relative positions

NORM_PLACEMENTS = ("post", "pre")


@dataclass(frozen=True, slots=True)
class LayerForm:
    """Differences of a layer from BERT's, beside its sizes.

    With norms before its parts, the first layer has none before attention: embeddings are
    normalised already.
    """

    norm_placement: Literal["post", "pre"] = "post"
    is_first: bool = False
    is_gated: bool = False
    attention_bias: bool = True
    feed_forward_bias: bool = True
    norm_bias: bool = True
    rope: Rope | None = None
    window: int = 0
    is_disentangled: bool = False


PLAIN = LayerForm()


@dataclass(frozen=True, slots=True)
class EncoderConfig(Config):
    """Sizes of an encoder; the defaults are BERT-base, uncased."""

    section: ClassVar = "encoder"
    unnamed: ClassVar = {  # what checkpoints of before have none of
        "norm_placement": "post",
        "is_gated": False,
        "attention_bias": True,
        "feed_forward_bias": True,
        "norm_bias": True,
        "has_position_table": True,
        "ropes": (),
        "layer_ropes": (),
        "windows": (),
        "relative_buckets": 0,
        "distances": None,
        "embedding_size": None,
        "num_distinct_layers": None,
    }

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
    norm_placement: Literal["post", "pre"] = "post"  # of a part's sum, or of its input
    is_gated: bool = False  # the feed-forward layers
    attention_bias: bool = True
    feed_forward_bias: bool = True
    norm_bias: bool = True
    has_position_table: bool = True  # learned vectors, added to the words'
    ropes: tuple[Rope, ...] = ()
    layer_ropes: tuple[int, ...] = ()  # of each layer: which of `ropes`, or NO_ROPE
    windows: tuple[int, ...] = ()  # of each layer: how far a token sees to each side; 0: all
    relative_buckets: int = 0  # of distances, each with a bias a head (Raffel et al. 2020)
    distances: Distances | None = None  # with vectors, whose products are in the scores
    embedding_size: int | None = None  # mapped to hidden_size behind the norm; None: the same
    num_distinct_layers: int | None = None  # that are used one after the other; None: all

    def __post_init__(self) -> None:
        check_sizes(self, ACTIVATIONS)
        check_choice("norm_placement", self.norm_placement, NORM_PLACEMENTS)
        if self.relative_buckets:
            check_range("relative_buckets", self.relative_buckets, 4, 128)
        if self.embedding_size is not None:
            check_size("embedding_size", self.embedding_size)
        if self.num_distinct < 1 or self.num_layers % self.num_distinct:
            limit = f"a divisor of num_layers {self.num_layers}"
            raise SettingError("num_distinct_layers", self.num_distinct, limit)
        for name, values in (("windows", self.windows), ("layer_ropes", self.layer_ropes)):
            if values and len(values) != self.num_layers:
                raise SettingError(name, values, f"{self.num_layers} values, one for each layer")
        for window in self.windows:
            check_range("windows", window, 0, float("inf"))
        for index in self.layer_ropes:
            check_range("layer_ropes", index, NO_ROPE, len(self.ropes) - 1)
        for rope in self.ropes:
            num_pairs, head_size = len(rope.inverse_frequencies), self.hidden_size // self.num_heads
            check_range("a rope's frequencies", num_pairs, 1, head_size / 2)
        for name in ("type_vocab_size", "position_offset", "pad_token_id"):
            check_range(name, getattr(self, name), 0, float("inf"))

    @property
    def num_distinct(self) -> int:
        """Layers with weights of their own."""
        return self.num_layers if self.num_distinct_layers is None else self.num_distinct_layers

    @property
    def word_size(self) -> int:
        """Values of a word's vector."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    def form(self, layer: int) -> LayerForm:
        """The form of a layer."""
        index = self.layer_ropes[layer] if self.layer_ropes else NO_ROPE
        return LayerForm(
            norm_placement=self.norm_placement,
            is_first=layer == 0,
            is_gated=self.is_gated,
            attention_bias=self.attention_bias,
            feed_forward_bias=self.feed_forward_bias,
            norm_bias=self.norm_bias,
            rope=None if index == NO_ROPE else self.ropes[index],
            window=self.windows[layer] if self.windows else 0,
            is_disentangled=self.distances is not None,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        ropes = tuple(
            Rope(tuple(map(float, each["inverse_frequencies"])), float(each["factor"]))
            for each in values.get("ropes", ())
        )
        stated = values.get("distances")
        distances = None if stated is None else Distances(**stated)
        whole = {**values, "ropes": ropes, "distances": distances}
        return super(EncoderConfig, cls).from_dict(whole)

    @classmethod
    def base(cls) -> Self:
        """12 layers of 768 with 12 heads: 110 million weights."""
        return cls()

    @classmethod
    def large(cls) -> Self:
        """24 layers of 1024 with 16 heads: 340 million weights."""
        return cls(hidden_size=1_024, num_layers=24, num_heads=16, intermediate_size=4_096)


class Embeddings(nn.Module):
    """Word (+ position) (+ token type), normalised, and mapped to the layers' size."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.word_size
        self.words = nn.Embedding(config.vocab_size, size)
        self.positions = (
            LearnedPositions(config.max_positions, size, config.position_offset)
            if config.has_position_table
            else None
        )
        self.token_types = (
            nn.Embedding(config.type_vocab_size, size) if config.type_vocab_size else None
        )
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps, bias=config.norm_bias)
        self.dropout = nn.Dropout(config.dropout)
        self.projection = (
            None if config.embedding_size is None else nn.Linear(size, config.hidden_size)
        )

    def forward(self, input_ids_BS: Tensor, token_type_ids_BS: Tensor | None = None) -> Tensor:
        """Without types every token is of type 0; a model that has none ignores them."""
        hidden_BSD: Tensor = self.words(input_ids_BS)
        if self.token_types is not None and token_type_ids_BS is None:
            hidden_BSD = hidden_BSD + self.token_types.weight[0]
        elif self.token_types is not None:
            hidden_BSD = hidden_BSD + self.token_types(token_type_ids_BS)
        if self.positions is not None:
            hidden_BSD = hidden_BSD + self.positions(input_ids_BS.shape[1])
        normed_BSD: Tensor = self.dropout(self.norm(hidden_BSD))
        return normed_BSD if self.projection is None else self.projection(normed_BSD)


class EncoderLayer(nn.Module):
    """Attention, then feed-forward, each with dropout and residual, and a norm behind or before."""

    def __init__(self, config: LayerSizes, form: LayerForm = PLAIN) -> None:
        super().__init__()
        size = config.hidden_size

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(size, eps=config.layer_norm_eps, bias=form.norm_bias)

        self.is_pre_norm = form.norm_placement == "pre"
        attention = DisentangledAttention if form.is_disentangled else MultiHeadAttention
        self.attention = attention(
            size,
            config.num_heads,
            config.dropout,
            bias=form.attention_bias,
            rope=form.rope,
            window=form.window,
        )
        self.attention_norm = None if self.is_pre_norm and form.is_first else norm()
        sizes = size, config.intermediate_size, config.activation
        self.feed_forward = (
            GatedFeedForward(*sizes, bias=form.feed_forward_bias)
            if form.is_gated
            else FeedForward(*sizes, bias=form.feed_forward_bias)
        )
        self.output_norm = norm()
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_BSD: Tensor,
        padding_mask_BS: Tensor,
        relative: Tensor | None = None,
    ) -> Tensor:
        def attend(source_BSD: Tensor) -> Tensor:
            distances = {} if relative is None else {"relative": relative}
            attended_BSD: Tensor = self.attention(source_BSD, padding_mask_BS, **distances)
            return attended_BSD

        return self.around(attend, hidden_BSD)

    def attention_input(self, hidden_BSD: Tensor) -> Tensor:
        """Keys and values are made of this."""
        if not self.is_pre_norm or self.attention_norm is None:
            return hidden_BSD
        normed_BSD: Tensor = self.attention_norm(hidden_BSD)
        return normed_BSD

    def around(self, attend: Attend, hidden_BSD: Tensor) -> Tensor:
        """The layer around another attention than its own."""
        for norm, part in (
            (self.attention_norm, attend),
            (self.output_norm, self.feed_forward),
        ):
            if self.is_pre_norm:
                added_BSD = part(hidden_BSD if norm is None else norm(hidden_BSD))
                hidden_BSD = hidden_BSD + self.dropout(added_BSD)
            else:
                assert norm is not None, "only the first norm before a part is left out"
                hidden_BSD = norm(hidden_BSD + self.dropout(part(hidden_BSD)))
        return hidden_BSD


class Encoder(nn.Module):
    """Embeddings and L layers; rows are right-padded and at most `max_positions` long.

    With norms before the layers' parts there is one more behind the last layer.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(
            EncoderLayer(config, config.form(index)) for index in range(config.num_distinct)
        )
        self.relative = relative_parts(config)
        self.norm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.norm_bias)
            if config.norm_placement == "pre"
            else None
        )
        self.apply(initialise)

    def forward(
        self,
        input_ids_BS: Tensor,
        attention_mask_BS: Tensor,
        token_type_ids_BS: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """L + 1 hidden states [B, S, D], the embeddings first; the last is normalised.

        All inputs are int64; attention_mask is 1 for a real token and 0 for padding.
        """
        padding_mask_BS = attention_mask_BS != 0
        relative = relative_of(self.relative, input_ids_BS)
        hidden_states = [self.embeddings(input_ids_BS, token_type_ids_BS)]
        for layer in in_order(self.layers, self.config):
            hidden_states.append(layer(hidden_states[-1], padding_mask_BS, relative))
        if self.norm is not None:
            hidden_states[-1] = self.norm(hidden_states[-1])
        return tuple(hidden_states)


def relative_parts(config: EncoderConfig) -> RelativePositions | DistanceVectors | None:
    """Parts for distances, which all layers share."""
    if config.distances is not None:
        return DistanceVectors(
            config.distances, config.hidden_size, config.max_positions, config.layer_norm_eps
        )
    if config.relative_buckets:
        return RelativePositions(
            config.relative_buckets, MAX_DISTANCE, config.num_heads, is_two_way=True
        )
    return None


def relative_of(
    relative: RelativePositions | DistanceVectors | None, input_ids_BS: Tensor
) -> Tensor | None:
    """[1, H, S, S], added to the scores of every row, or the vectors [2, 2 S, D] of distances."""
    if relative is None:
        return None
    if isinstance(relative, DistanceVectors):
        vectors_2TD: Tensor = relative(input_ids_BS.shape[1])
        return vectors_2TD
    place_S = torch.arange(input_ids_BS.shape[1], device=input_ids_BS.device)
    bias_1HSS: Tensor = relative(place_S[None], place_S)
    return bias_1HSS


def in_order(layers: nn.ModuleList, config: EncoderConfig) -> list[EncoderLayer]:
    """The layers as they are used; one may come several times in a row."""
    repeats = config.num_layers // config.num_distinct
    return [cast(EncoderLayer, layer) for layer in layers for _ in range(repeats)]


def initialise(module: nn.Module) -> None:
    """Fresh weights as BERT starts: normal with deviation 0.02, biases zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def initialise_decoder(network: nn.Module, layers: nn.ModuleList) -> None:
    """Fresh weights as GPT-2 starts (2.3): all layers together keep the residual stream's size.

    Each adds to it twice, by attention and by its feed-forward layer.
    """
    network.apply(initialise)
    scaled_std = INITIAL_STD / math.sqrt(2 * len(layers))
    for name, weight in layers.named_parameters():
        if name.endswith(("attention.output.weight", "feed_forward.contract.weight")):
            nn.init.normal_(weight, std=scaled_std)
