"""Word vectors as a network: a text's vector is the mean of its words'.

Knows nothing about how the vectors were found. Words of no vocabulary and special tokens have no
meaning here, so they do not count; a text without any known word gives zeros.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, D vector size, V words

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from models.data.vocabulary import SPECIAL
from models.errors import check_range
from models.networks.heads import TextNetwork
from models.networks.layers import Config


@dataclass(frozen=True, slots=True)
class WordVectorsConfig(Config):
    """Sizes of a table of word vectors."""

    section: ClassVar = "words"

    vocab_size: int
    hidden_size: int
    max_positions: int = 512  # longest text in tokens: a bound for servers, not of the network
    normalize: bool = False  # to length 1
    pad_token_id: int = 0

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "max_positions"):
            check_range(name, getattr(self, name), 1, float("inf"))

    @property
    def num_layers(self) -> int:
        """Number of layers: 0, as there is the table alone."""
        return 0


class WordVectors(TextNetwork):
    """A vector per word; the special tokens have the first ids."""

    output_name = "embedding"
    served_name = "words"  # unknown ones have no vector

    def __init__(self, config: WordVectorsConfig) -> None:
        super().__init__()
        self.config: WordVectorsConfig = config
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)

    @property
    def embedding_size(self) -> int:
        return self.config.hidden_size

    @property
    def pooling_description(self) -> str:
        return "mean of words" + (", normalised" if self.config.normalize else "")

    def forward(self, input_ids: Tensor, attention_mask: Tensor, _: Tensor | None = None) -> Tensor:
        """[B, D]; token types mean nothing here."""
        is_word_BS = (input_ids >= len(SPECIAL)) & (attention_mask != 0)
        weight_BS1 = is_word_BS.unsqueeze(2).to(self.words.weight.dtype)
        sum_BD = (self.words(input_ids) * weight_BS1).sum(dim=1)
        mean_BD = sum_BD / weight_BS1.sum(dim=1).clamp(min=1.0)
        return F.normalize(mean_BD.float(), dim=-1) if self.config.normalize else mean_BD
