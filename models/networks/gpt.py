"""The GPT decoder: token ids in, logits of every next token out (Radford et al. 2018 and 2019).

Pre-norm: normalise before attention and before the feed-forward, and once more at the end.
Positions are learned, and the table of word vectors serves as the output layer too. The attention
is the encoder's, with a causal mask: a token sees itself and what came before.

Knows nothing about tokenizers, files or sampling, and keeps no cache: `generate` is the
slow reference, and the exported graph the fast way.

Generate text in plain PyTorch, without a cache: the slow reference of the fast way.

Knows nothing about tokenizers. Each step runs the whole sequence again.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size, V vocabulary

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import check_range
from models.networks.encoder import initialise_decoder
from models.networks.layers import (
    ACTIVATIONS,
    Config,
    LearnedPositions,
    PreNormLayer,
    check_sizes,
    last_of,
)


@dataclass(frozen=True, slots=True)
class GPTConfig(Config):
    """Sizes of a decoder; the defaults are GPT-2's smallest, 124 million weights."""

    section: ClassVar = "decoder"

    vocab_size: int = 50_257
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3_072
    max_positions: int = 1_024  # longest sequence in tokens: prompt and output
    layer_norm_eps: float = 1e-5
    dropout: float = 0.1  # of embeddings, attention weights and what joins the residual stream
    activation: str = "gelu_tanh"
    eos_token_id: int = 50_256  # parts documents in training, and ends a generated one

    def __post_init__(self) -> None:
        check_sizes(self, ACTIVATIONS)
        check_range("eos_token_id", self.eos_token_id, 0, self.vocab_size - 1)

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def num_kv_heads(self) -> int:
        """Each head of queries has keys of its own."""
        return self.num_heads

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return (self.eos_token_id,)

    @classmethod
    def tiny(cls) -> Self:
        """4 layers of 192 with 3 heads: 2.6 million weights, for minutes on a processor."""
        return cls(
            vocab_size=4_096,
            hidden_size=192,
            num_layers=4,
            num_heads=3,
            intermediate_size=768,
            max_positions=768,
            eos_token_id=0,
        )

    @classmethod
    def small(cls) -> Self:
        """GPT-2: 12 layers of 768 with 12 heads, 124 million weights."""
        return cls()

    @classmethod
    def medium(cls) -> Self:
        """24 layers of 1024 with 16 heads: 355 million weights."""
        return cls(hidden_size=1_024, num_layers=24, num_heads=16, intermediate_size=4_096)

    @classmethod
    def large(cls) -> Self:
        """36 layers of 1280 with 20 heads: 774 million weights."""
        return cls(hidden_size=1_280, num_layers=36, num_heads=20, intermediate_size=5_120)

    @classmethod
    def xl(cls) -> Self:
        """48 layers of 1600 with 25 heads: 1.56 billion weights."""
        return cls(hidden_size=1_600, num_layers=48, num_heads=25, intermediate_size=6_400)


class DecoderLayer(PreNormLayer):
    """A layer in which a token sees itself and what came before."""

    is_causal = True


class GPT(nn.Module):
    """Embeddings, L layers, a norm, and the word vectors once more as the output layer.

    Rows are right-padded, so no mask is needed: what pads a row comes after all that is used.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = LearnedPositions(config.max_positions, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        initialise_decoder(self, self.layers)

    def embedded(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """[..., D] of tokens at any places, by default from the first on."""
        places = (
            self.positions(input_ids.shape[-1])
            if position_ids is None
            else self.positions.table(position_ids)
        )
        vectors: Tensor = self.words(input_ids) + places
        return vectors

    def hidden_states(
        self,
        input_ids_BS: Tensor,
        attention_mask_BS: Tensor | None = None,  # noqa: ARG002 - nothing that is read sees padding
    ) -> Tensor:
        """[B, S, D], normalised: what the output layer takes."""
        hidden_BSD: Tensor = self.dropout(self.embedded(input_ids_BS))
        for layer in self.layers:
            hidden_BSD = layer(hidden_BSD)
        normed_BSD: Tensor = self.norm(hidden_BSD)
        return normed_BSD

    def last_states(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """[B, D], normalised: of each row's last token that is no padding."""
        return last_of(self.hidden_states(input_ids_BS, attention_mask_BS), attention_mask_BS)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] for normalised hidden states [..., D]."""
        return F.linear(hidden, self.words.weight)

    def forward(self, input_ids_BS: Tensor) -> Tensor:
        """Logits [B, S, V]; those at token i are of token i + 1. S is at most max_positions."""
        return self.logits(self.hidden_states(input_ids_BS))


class Continues(Protocol):
    """A network that continues token ids, as `GPT` does."""

    @property
    def config(self) -> Any: ...  # noqa: ANN401 - each network has its own

    def hidden_states(self, input_ids_BS: Tensor, /) -> Tensor: ...

    def logits(self, hidden: Tensor, /) -> Tensor: ...


def generate(
    model: Continues,
    prompt: Sequence[int],
    num_tokens: int,
    *,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    ignore_eos: bool = False,
) -> list[int]:
    """Up to `num_tokens` new ids, fewer where the end-of-text id (left out) or max_positions stops.

    Temperature 0 is greedy; otherwise ids are drawn from softmax(logits / temperature).
    """
    ids = list(prompt)
    limit = min(len(ids) + num_tokens, model.config.max_positions)
    with torch.inference_mode():
        while len(ids) < limit:
            logits = model.logits(model.hidden_states(torch.tensor([ids]))[0, -1]).float()
            if temperature:
                weights = torch.softmax(logits / temperature, dim=-1)
                token = int(torch.multinomial(weights, 1, generator=generator))
            else:
                token = int(logits.argmax())
            if token in model.config.eos_token_ids and not ignore_eos:
                break
            ids.append(token)
    return ids[len(prompt) :]
