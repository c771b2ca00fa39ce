"""An encoder that fills masks, and in pretraining tells whether one text follows another.

Knows nothing about files or texts. The output layer is the word vectors once more, as in the
published BERT, so that a word costs one vector. Its names: the prediction head is what Hugging
Face calls `cls.predictions` or `lm_head`, the other one its pooler and `seq_relationship`.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size, M masks

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import check_choice, check_range
from models.networks.encoder import Encoder, EncoderConfig, initialise
from models.networks.heads import EncoderNetwork
from models.networks.layers import ACTIVATIONS

SAMPLE_STRIDE = 7  # one of this number of a sample's tokens is a mask; about as many as in training


class PredictionHead(nn.Module):
    """Dense, activation, norm, then a score for every word by its vector, and a bias."""

    def __init__(self, config: EncoderConfig, activation: str) -> None:
        super().__init__()
        check_choice("activation", activation, ACTIVATIONS)
        self.activation = activation
        self.dense = nn.Linear(config.hidden_size, config.word_size)
        self.norm = nn.LayerNorm(config.word_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.apply(initialise)

    def forward(self, hidden_MD: Tensor, words_VD: Tensor) -> Tensor:
        """Logits [M, V]."""
        transformed_MD = self.norm(ACTIVATIONS[self.activation](self.dense(hidden_MD)))
        return F.linear(transformed_MD, words_VD, self.bias)


class NextSentenceHead(nn.Module):
    """From the first token: whether the second text follows the first, or is from elsewhere."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, 2)
        self.apply(initialise)

    def forward(self, hidden_BSD: Tensor) -> Tensor:
        """Logits [B, 2], in the order of `models/data/sentence_pairs.py`."""
        logits: Tensor = self.output(torch.tanh(self.dense(hidden_BSD[:, 0])))
        return logits


class MaskedLanguageModel(EncoderNetwork):
    """Says of every mask which words may stand there."""

    output_name = "logits"

    def __init__(
        self,
        encoder: Encoder,
        mask_token_id: int,
        activation: str = "gelu",
        *,
        next_sentence: bool = True,
    ) -> None:
        super().__init__(encoder)
        config = encoder.config
        check_range("mask_token_id", mask_token_id, 0, config.vocab_size - 1)
        self._mask_token_id = mask_token_id
        self.head = PredictionHead(config, activation)
        # Kept, so that training can go on and fine-tuning begin from it; no export has it.
        self.next_sentence = NextSentenceHead(config.hidden_size) if next_sentence else None

    @property
    def mask_token_id(self) -> int:
        return self._mask_token_id

    def as_sample(self, row: list[int]) -> list[int]:
        """A sample with masks: without any, the output would be empty."""
        return [
            self.mask_token_id if place % SAMPLE_STRIDE == 1 else token
            for place, token in enumerate(row)
        ]

    def scores(self, hidden_MD: Tensor) -> Tensor:
        """[M, V] for any tokens' last hidden states [M, D]."""
        logits: Tensor = self.head(hidden_MD, self.encoder.embeddings.words.weight)
        return logits

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Logits [M, V] of the masks of all rows, one after the other."""
        hidden_BSD = self.encoder(input_ids, attention_mask, token_type_ids)[-1]
        return self.scores(hidden_BSD[input_ids == self.mask_token_id])
