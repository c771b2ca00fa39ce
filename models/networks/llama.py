"""The decoder of Llama and of what came after it: token ids in, logits of every next token out.

Against GPT: a root mean square instead of a norm with a mean (Zhang and Sennrich 2019), positions
by rotating queries and keys (Su et al. 2021), fewer heads of keys and values than of queries
(Ainslie et al. 2023), and a gated feed-forward layer (Shazeer 2020). Llama, Mistral, Qwen, Gemma,
Phi, SmolLM, OLMo and Granite are this network with other fields of `LlamaConfig`; what differs
otherwise is folded into the weights when a checkpoint is imported (`models/checkpoints/llama.py`).

Knows nothing about tokenizers or files, and keeps no cache.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, H heads, D hidden size

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import SettingError, check_choice, check_range
from models.networks.attention import causal_mask, window_mask
from models.networks.encoder import initialise_decoder
from models.networks.layers import POSITIVE, Attend, Config, GatedFeedForward, last_of
from models.networks.ropes import NO_ROPE, Rope, rotated

NormPlacement = Literal["pre", "post", "both"]
QueryKeyNorm = Literal["none", "head", "all"]
GATES = ("silu", "gelu_tanh")


@dataclass(frozen=True, slots=True)
class LlamaConfig(Config):
    """Sizes of a decoder, and what tells one family from another."""

    section: ClassVar = "decoder"
    unnamed: ClassVar = {"is_causal": True}

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    max_positions: int  # longest sequence in tokens: prompt and output
    eos_token_ids: tuple[int, ...]  # each ends a generated text
    norm_eps: float = 1e-5
    # Of each part's input, of its output, or of both.
    norm_placement: NormPlacement = "pre"
    # Of queries and keys before they are rotated: each head by itself, or all heads at once.
    query_key_norm: QueryKeyNorm = "none"
    query_key_value_bias: bool = False
    output_bias: bool = False
    feed_forward_bias: bool = False
    attention_scale: float | None = None  # of scores; None: 1 / sqrt(head_size)
    attention_softcap: float = 0.0  # c of c * tanh(score / c); 0: none
    final_softcap: float = 0.0  # the same of the logits
    windows: tuple[int, ...] = ()  # of each layer: keys that a query sees, itself included; 0: all
    ropes: tuple[Rope, ...] = field(default=())
    layer_ropes: tuple[int, ...] = ()  # of each layer: which of `ropes`, or NO_ROPE
    activation: str = "silu"
    embedding_scale: float = 1.0
    is_tied: bool = True  # the table of word vectors is the output layer too
    dropout: float = 0.0  # of embeddings and of what joins the residual stream
    # Whether a token sees itself and what came before; else it sees all, and a window is as far
    # ahead as back: both ways up to window - 1.
    is_causal: bool = True

    def __post_init__(self) -> None:
        for name in (*POSITIVE, "num_heads", "num_kv_heads", "head_size"):
            check_range(name, getattr(self, name), 1, float("inf"))
        if self.num_heads % self.num_kv_heads:
            limit = f"a divisor of num_heads {self.num_heads}"
            raise SettingError("num_kv_heads", self.num_kv_heads, limit)
        check_range("dropout", self.dropout, 0.0, 0.9)
        check_choice("activation", self.activation, GATES)
        check_choice("norm_placement", self.norm_placement, ("pre", "post", "both"))
        check_choice("query_key_norm", self.query_key_norm, ("none", "head", "all"))
        for token in self.eos_token_ids:
            check_range("eos_token_ids", token, 0, self.vocab_size - 1)
        for name, values in (("windows", self.windows), ("layer_ropes", self.layer_ropes)):
            if len(values) != self.num_layers:
                raise SettingError(name, values, f"{self.num_layers} values, one for each layer")
        for index in self.layer_ropes:
            check_range("layer_ropes", index, NO_ROPE, len(self.ropes) - 1)
        for rope in self.ropes:
            check_range(
                "a rope's frequencies", len(rope.inverse_frequencies), 1, self.head_size / 2
            )

    @property
    def scale(self) -> float:
        """Factor of scores."""
        return self.attention_scale or 1.0 / math.sqrt(self.head_size)

    @classmethod
    def plain(
        cls,
        vocab_size: int,
        hidden_size: int,
        num_layers: int,
        num_heads: int,
        num_kv_heads: int,
        intermediate_size: int,
        max_positions: int,
        **others: Any,  # noqa: ANN401 - fields of this record
    ) -> Self:
        """A Llama: heads of hidden_size / num_heads, one rope in all layers, no windows."""
        head_size = others.pop("head_size", hidden_size // num_heads)
        ropes = others.pop("ropes", (Rope.default(head_size),))
        return cls(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=intermediate_size,
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            max_positions=max_positions,
            windows=others.pop("windows", (0,) * num_layers),
            ropes=ropes,
            layer_ropes=others.pop("layer_ropes", (0,) * num_layers),
            eos_token_ids=others.pop("eos_token_ids", (0,)),
            **others,
        )

    @classmethod
    def tiny(cls) -> Self:
        """4 layers of 192 with 3 heads, one of keys: about the weights of GPT's tiny."""
        return cls.plain(4_096, 192, 4, 3, 1, 576, 768)

    @classmethod
    def smol(cls) -> Self:
        """SmolLM2-135M: 30 layers of 576 with 9 heads, 3 of keys."""
        ropes = (Rope.default(64, 100_000.0),)
        return cls.plain(49_152, 576, 30, 9, 3, 1_536, 2_048, ropes=ropes)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        ropes = tuple(
            Rope(tuple(map(float, each["inverse_frequencies"])), float(each["factor"]))
            for each in values.get("ropes", ())
        )
        return super(LlamaConfig, cls).from_dict({**values, "ropes": ropes})


class GroupedAttentionCore(nn.Module):
    """Rotation and attention of H heads over Hkv: what an exporter replaces."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.scale = config.scale
        self.softcap = config.attention_softcap
        self.window = config.windows[layer]
        self.is_causal = config.is_causal
        index = config.layer_ropes[layer]
        self.rope = None if index == NO_ROPE else config.ropes[index]

    def forward(
        self,
        query_BHSDh: Tensor,
        key_BHSDh: Tensor,
        value_BHSDh: Tensor,
        attention_mask_BS: Tensor | None = None,
    ) -> Tensor:
        """Return [B, H, S, Dh]; keys and values have Hkv heads.

        The mask is for what sees padding, which comes after all that a causal attention sees.
        """
        num_tokens = query_BHSDh.shape[-2]
        if self.rope is not None:
            cos_SR, sin_SR = self.rope.tables(num_tokens, query_BHSDh.device)
            query_BHSDh = rotated(query_BHSDh, cos_SR, sin_SR)
            key_BHSDh = rotated(key_BHSDh, cos_SR, sin_SR)
        if self.is_causal and not (self.softcap or self.window):
            return F.scaled_dot_product_attention(
                query_BHSDh,
                key_BHSDh,
                value_BHSDh,
                is_causal=True,
                scale=self.scale,
                enable_gqa=True,
            )
        groups = query_BHSDh.shape[1] // key_BHSDh.shape[1]
        key_BHSDh = key_BHSDh.repeat_interleave(groups, dim=1)
        scores = query_BHSDh @ key_BHSDh.transpose(-2, -1) * self.scale
        if self.softcap:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        visible = self._visible(num_tokens, attention_mask_BS, scores.device)
        weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
        return weights @ value_BHSDh.repeat_interleave(groups, dim=1)

    def _visible(
        self, num_tokens: int, attention_mask_BS: Tensor | None, device: torch.device
    ) -> Tensor:
        """[S, S], or [B, 1, S, S] where padding is masked; a token always sees itself."""
        if self.is_causal:
            visible_SS = causal_mask(num_tokens, device)
            return visible_SS & ~visible_SS.tril(-self.window) if self.window else visible_SS
        visible = window_mask(num_tokens, self.window - 1 if self.window else num_tokens, device)
        if attention_mask_BS is not None:
            itself_SS = window_mask(num_tokens, 0, device)
            visible = visible & (attention_mask_BS != 0)[:, None, None, :] | itself_SS
        return visible


class HeadNorm(nn.RMSNorm):
    """Normalises queries or keys [B, S, heads * Dh]: each head by itself, or all at once."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__(size, eps)
        self.size = size

    @classmethod
    def of(cls, config: LlamaConfig, width: int) -> Self | None:
        """Norm of the family for queries or keys of `width` values; None where it has none."""
        sizes = {"head": config.head_size, "all": width}
        size = sizes.get(config.query_key_norm)
        return None if size is None else cls(size, config.norm_eps)

    def forward(self, projected: Tensor) -> Tensor:
        if projected.shape[-1] == self.size:
            return super().forward(projected)
        num_heads = projected.shape[-1] // self.size  # no -1: it would bind the number of tokens
        return super().forward(torch.unflatten(projected, -1, (num_heads, self.size))).flatten(-2)


class GroupedAttention(nn.Module):
    """Attention of H heads, groups of which share a head of keys and values."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        hidden_size, bias = config.hidden_size, config.query_key_value_bias
        query_size = config.num_heads * config.head_size
        key_size = config.num_kv_heads * config.head_size
        self.head_size = config.head_size
        self.query = nn.Linear(hidden_size, query_size, bias=bias)
        self.key = nn.Linear(hidden_size, key_size, bias=bias)
        self.value = nn.Linear(hidden_size, key_size, bias=bias)
        self.output = nn.Linear(query_size, hidden_size, bias=config.output_bias)
        self.query_norm = HeadNorm.of(config, query_size)
        self.key_norm = HeadNorm.of(config, key_size)
        self.core: nn.Module = GroupedAttentionCore(config, layer)

    def forward(self, hidden_BSD: Tensor, attention_mask_BS: Tensor | None = None) -> Tensor:
        query_BSD, key_BSD = self.query(hidden_BSD), self.key(hidden_BSD)
        if self.query_norm is not None and self.key_norm is not None:
            query_BSD, key_BSD = self.query_norm(query_BSD), self.key_norm(key_BSD)
        query_BHSDh, key_BHSDh = self.heads(query_BSD), self.heads(key_BSD)
        value_BHSDh = self.heads(self.value(hidden_BSD))
        heads_BHSDh = query_BHSDh, key_BHSDh, value_BHSDh
        context_BHSDh: Tensor = self.core(*heads_BHSDh, attention_mask_BS)
        output_BSD: Tensor = self.output(context_BHSDh.transpose(1, 2).flatten(2))
        return output_BSD

    def heads(self, projected: Tensor) -> Tensor:
        """[B, heads, S, Dh] of [B, S, heads * Dh]."""
        return torch.unflatten(projected, -1, (-1, self.head_size)).transpose(1, 2)


class LlamaLayer(nn.Module):
    """Attention, then feed-forward, each with a norm before it, behind it, or both."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()

        def norm(placement: NormPlacement) -> nn.Module | None:
            if config.norm_placement not in (placement, "both"):
                return None
            return nn.RMSNorm(config.hidden_size, config.norm_eps)

        self.attention_norm = norm("pre")
        self.attention = GroupedAttention(config, layer)
        self.attention_output_norm = norm("post")
        self.feed_forward_norm = norm("pre")
        self.feed_forward = GatedFeedForward(
            config.hidden_size,
            config.intermediate_size,
            config.activation,
            bias=config.feed_forward_bias,
        )
        self.feed_forward_output_norm = norm("post")
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_BSD: Tensor, attention_mask_BS: Tensor | None = None) -> Tensor:
        def attend(source_BSD: Tensor) -> Tensor:
            attended_BSD: Tensor = self.attention(source_BSD, attention_mask_BS)
            return attended_BSD

        return self.around(attend, hidden_BSD)

    def attention_input(self, hidden_BSD: Tensor) -> Tensor:
        """Keys and values are made of this."""
        return hidden_BSD if self.attention_norm is None else self.attention_norm(hidden_BSD)

    def around(self, attend: Attend, hidden_BSD: Tensor) -> Tensor:
        """The layer around another attention than its own."""
        for before, part, behind in (
            (self.attention_norm, attend, self.attention_output_norm),
            (self.feed_forward_norm, self.feed_forward, self.feed_forward_output_norm),
        ):
            added_BSD = part(hidden_BSD if before is None else before(hidden_BSD))
            joining_BSD = added_BSD if behind is None else behind(added_BSD)
            hidden_BSD = hidden_BSD + self.dropout(joining_BSD)
        return hidden_BSD


class Llama(nn.Module):
    """Word vectors, L layers, a norm and an output layer, which may be the word vectors once more.

    Rows are right-padded, so that what pads a row comes after all that causal attention sees.
    """

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(LlamaLayer(config, index) for index in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        size = (config.hidden_size, config.vocab_size)
        self.output = None if config.is_tied else nn.Linear(*size, bias=False)
        initialise_decoder(self, self.layers)

    def embedded(self, input_ids: Tensor, _: Tensor | None = None) -> Tensor:
        """[..., D] of tokens, as the first layer takes them; positions come with attention."""
        vectors: Tensor = self.words(input_ids)
        scale = self.config.embedding_scale
        return vectors if scale == 1.0 else vectors * scale

    def hidden_states(
        self, input_ids_BS: Tensor, attention_mask_BS: Tensor | None = None
    ) -> Tensor:
        """[B, S, D], normalised: what the output layer takes; causal attention needs no mask."""
        mask_BS = None if self.config.is_causal else attention_mask_BS
        hidden_BSD: Tensor = self.dropout(self.embedded(input_ids_BS))
        for layer in self.layers:
            hidden_BSD = layer(hidden_BSD, mask_BS)
        normed_BSD: Tensor = self.norm(hidden_BSD)
        return normed_BSD

    def last_states(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """[B, D], normalised: of each row's last token that is no padding."""
        return last_of(self.hidden_states(input_ids_BS, attention_mask_BS), attention_mask_BS)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] for normalised hidden states [..., D]."""
        output = self.words if self.output is None else self.output
        logits = F.linear(hidden, output.weight)
        cap = self.config.final_softcap
        return cap * torch.tanh(logits / cap) if cap else logits

    def forward(self, input_ids_BS: Tensor) -> Tensor:
        """Logits [B, S, V]; those at token i are of token i + 1. S is at most max_positions."""
        return self.logits(self.hidden_states(input_ids_BS))
