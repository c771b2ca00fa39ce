"""Encoders that classify every token: a label each, or whether an answer starts or ends there.

Knows nothing about files, tokenizers or training. Both give packed rows: the real tokens of all
texts one after the other.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, D hidden size, N real tokens

from typing import ClassVar

from torch import Tensor, nn

from models.networks.encoder import Encoder, initialise
from models.networks.heads import EncoderNetwork


class TokenNetwork(EncoderNetwork):
    """An encoder with a linear map on each token's last hidden state (Devlin et al. 2018, 4)."""

    output_name: ClassVar[str] = "logits"

    def __init__(self, encoder: Encoder, num_outputs: int, dropout: float = 0.1) -> None:
        super().__init__(encoder)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(encoder.config.hidden_size, num_outputs)
        self.output.apply(initialise)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Packed rows [N, num_outputs]."""
        hidden_BSD = self.encoder(input_ids, attention_mask, token_type_ids)[-1]
        hidden_ND = hidden_BSD[attention_mask != 0]
        values: Tensor = self.output(self.dropout(hidden_ND))
        return values


class TokenClassifier(TokenNetwork):
    """A label for each token: `[N, num_labels]`."""

    @property
    def num_labels(self) -> int:
        return self.output.out_features


class QuestionAnswerer(TokenNetwork):
    """Whether an answer starts, and whether it ends, at each token of question and context."""

    def __init__(self, encoder: Encoder, dropout: float = 0.1) -> None:
        super().__init__(encoder, 2, dropout)
