"""Encoders that classify every token: a label each, or whether an answer starts or ends there.

Knows nothing about files, tokenizers or training. Both give packed rows: the real tokens of all
texts one after the other.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size, N real tokens

from typing import ClassVar

from torch import Tensor, nn

from models.errors import check_choice
from models.networks.encoder import Encoder, initialise
from models.networks.heads import EncoderNetwork
from models.networks.layers import ACTIVATIONS


class TokenHead(nn.Module):
    """Dense, activation, norm: what ModernBERT has before the linear map."""

    def __init__(self, hidden_size: int, activation: str, norm_eps: float) -> None:
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        self.activation = activation
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=norm_eps)
        self.apply(initialise)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """[N, D]."""
        normed_ND: Tensor = self.norm(ACTIVATIONS[self.activation](self.dense(hidden_ND)))
        return normed_ND


class TokenNetwork(EncoderNetwork):
    """An encoder with a linear map on each token's last hidden state (Devlin et al. 2018, 4).

    With an `activation` there is a `TokenHead` between the two.
    """

    output_name: ClassVar[str] = "logits"

    def __init__(
        self,
        encoder: Encoder,
        num_outputs: int,
        dropout: float = 0.1,
        activation: str | None = None,
    ) -> None:
        super().__init__(encoder)
        config = encoder.config
        self.head = (
            None
            if activation is None
            else TokenHead(config.hidden_size, activation, config.layer_norm_eps)
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(encoder.config.hidden_size, num_outputs)
        self.output.apply(initialise)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Packed rows [N, num_outputs]."""
        hidden_BSD = self.encoder(input_ids, attention_mask, token_type_ids)[-1]
        hidden_ND = hidden_BSD[attention_mask != 0]
        if self.head is not None:
            hidden_ND = self.head(hidden_ND)
        values: Tensor = self.output(self.dropout(hidden_ND))
        return values


class TokenClassifier(TokenNetwork):
    """A label for each token: `[N, num_labels]`."""

    @property
    def num_labels(self) -> int:
        return self.output.out_features


class QuestionAnswerer(TokenNetwork):
    """Whether an answer starts, and whether it ends, at each token of question and context."""

    def __init__(
        self, encoder: Encoder, dropout: float = 0.1, activation: str | None = None
    ) -> None:
        super().__init__(encoder, 2, dropout, activation)
