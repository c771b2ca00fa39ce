"""ELMo (Peters et al. 2018): two language models side by side, one that reads from either end.

Knows nothing about tokenizers or training. All layers of both are a word's features: the same word
has other ones where other words stand around it. Where the paper builds its lowest layer from
characters, this one has a vector per token, the same for input and output of both directions.

The one idea of padding: the backward model reads each row from its own last token, so a row is
turned around by its length, not by the batch's.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, N real tokens, L layers, D

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import check_range
from models.networks.heads import TextNetwork
from models.networks.layers import Config
from models.networks.pooling import pool


@dataclass(frozen=True, slots=True)
class ElmoConfig(Config):
    """Sizes of ELMo: each direction has `num_layers` LSTMs of `hidden_size` units."""

    section: ClassVar = "elmo"

    vocab_size: int
    hidden_size: int = 128  # of token vectors too
    num_layers: int = 2
    max_positions: int = 512  # longest text in tokens: a bound for servers, not of the network
    dropout: float = 0.1
    pad_token_id: int = 0

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "num_layers", "max_positions"):
            check_range(name, getattr(self, name), 1, float("inf"))
        check_range("dropout", self.dropout, 0.0, 0.9)


class DirectedLSTM(nn.Module):
    """One LSTM over rows of any lengths, which reads each forwards or from its own last token."""

    def __init__(self, size: int, *, is_backward: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, size, batch_first=True)
        self.is_backward = is_backward

    def forward(self, hidden_BSD: Tensor, lengths_B: Tensor) -> Tensor:
        """[B, S, D]; what it is on padding means nothing."""
        if not self.is_backward:
            forwards_BSD: Tensor = self.lstm(hidden_BSD)[0]
            return forwards_BSD
        order_BSD = turned(hidden_BSD.shape[1], lengths_B).unsqueeze(2).expand_as(hidden_BSD)
        backwards_BSD: Tensor = self.lstm(hidden_BSD.gather(1, order_BSD))[0]
        return backwards_BSD.gather(1, order_BSD)


class OneWay(nn.Module):
    """LSTMs one on the other that read in one direction; above the first each adds to its input."""

    def __init__(self, config: ElmoConfig, *, is_backward: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            DirectedLSTM(config.hidden_size, is_backward=is_backward)
            for _ in range(config.num_layers)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens_BSD: Tensor, lengths_B: Tensor) -> tuple[Tensor, ...]:
        """The states [B, S, D] of each layer."""
        states: list[Tensor] = []
        for layer in self.layers:
            below_BSD = states[-1] if states else tokens_BSD
            read_BSD = layer(self.dropout(below_BSD), lengths_B)
            states.append(read_BSD + below_BSD if states else read_BSD)
        return tuple(states)


def turned(num_tokens: int, lengths_B: Tensor) -> Tensor:
    """[B, S]: the places of each row's tokens from last to first, padding where it was."""
    place_BS = torch.arange(num_tokens, device=lengths_B.device).expand(len(lengths_B), -1)
    last_B1 = lengths_B[:, None] - 1
    return torch.where(place_BS <= last_B1, last_B1 - place_BS, place_BS)


class Elmo(TextNetwork):
    """Token vectors, and two stacks of LSTMs that never see each other's states."""

    output_name = "hidden_states"

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config: ElmoConfig = config
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.forwards = OneWay(config, is_backward=False)
        self.backwards = OneWay(config, is_backward=True)
        nn.init.normal_(self.words.weight, std=config.hidden_size**-0.5)

    @property
    def embedding_size(self) -> int:
        """Values of a token in each layer: both directions'."""
        return 2 * self.config.hidden_size

    def directions(
        self, input_ids: Tensor, attention_mask: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The states [B, S, D] of each layer that reads forwards, and of each that reads back."""
        tokens_BSD = self.words(input_ids)
        lengths_B = attention_mask.sum(dim=1)
        return self.forwards(tokens_BSD, lengths_B), self.backwards(tokens_BSD, lengths_B)

    def layers(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B, S, L + 1, 2 D], both directions'; the token's own vector, twice, is first."""
        tokens_BSD = self.words(input_ids)
        forwards, backwards = self.directions(input_ids, attention_mask)
        layers = [
            torch.cat(pair, dim=2)
            for pair in zip((tokens_BSD, *forwards), (tokens_BSD, *backwards), strict=True)
        ]
        return torch.stack(layers, dim=2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, _: Tensor | None = None) -> Tensor:
        """Features [N, L + 1, 2 D] of all real tokens."""
        return self.layers(input_ids, attention_mask)[attention_mask != 0]

    def losses(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[2, M]: cross entropies, in nats, of each next token and of each one before.

        A language model never sees the token that it predicts: the state at a token tells of the
        next one in its direction, by the vectors of all tokens.
        """
        forwards, backwards = self.directions(input_ids, attention_mask)
        is_pair = attention_mask[:, 1:] != 0
        left_M, right_M = input_ids[:, :-1][is_pair], input_ids[:, 1:][is_pair]
        vectors_DV = self.words.weight.T
        return torch.stack(
            [
                F.cross_entropy(states_MD @ vectors_DV, targets_M, reduction="none")
                for states_MD, targets_M in (
                    (forwards[-1][:, :-1][is_pair], right_M),
                    (backwards[-1][:, 1:][is_pair], left_M),
                )
            ]
        )


class ElmoNetwork(TextNetwork):
    """An ELMo, and what a subclass makes of its layers."""

    config: ElmoConfig

    def __init__(self, elmo: Elmo) -> None:
        super().__init__()
        self.elmo = elmo
        self.config = elmo.config

    @property
    def body(self) -> nn.Module:
        return self.elmo


class ElmoEmbedder(ElmoNetwork):
    """One vector per text: the mean over its tokens of the mean of all layers.

    The mean is the mix that a task starts from, before it has learnt which layers it wants.
    """

    output_name = "embedding"
    pooling_description = "mean of the mean of all layers"

    @property
    def embedding_size(self) -> int:
        return self.elmo.embedding_size

    def forward(self, input_ids: Tensor, attention_mask: Tensor, _: Tensor | None = None) -> Tensor:
        """Embeddings [B, 2 D]."""
        mixed_BSD = self.elmo.layers(input_ids, attention_mask).mean(dim=2)
        return pool(mixed_BSD, attention_mask, "mean")


class ScalarMix(nn.Module):
    """`gamma * sum softmax(w)_j h_j` over layers: what a task learns to make of features."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, states_LD: Tensor) -> Tensor:
        """[..., D] of [..., L, D]; at first the mean of the layers."""
        share_L1 = self.weights.softmax(dim=0).unsqueeze(1)
        mixed_D: Tensor = self.scale * (states_LD * share_L1).sum(dim=-2)
        return mixed_D

    def description(self) -> str:
        """The learnt weights, for people: the token's own vector is layer 0."""
        shares = self.weights.detach().softmax(dim=0).tolist()
        layers = ", ".join(f"layer {layer} {share:.3f}" for layer, share in enumerate(shares))
        return f"mix of ELMo's layers: {layers}; gamma {self.scale.item():.3f}"
