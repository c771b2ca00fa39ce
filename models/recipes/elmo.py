"""Training ELMo from nothing: lines of text, read in both directions.

Knows nothing about the loop; it is the `elmo` of `models/recipes/kinds.py`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from models.data.batches import epoch_batches, padded_inputs, sorted_batches
from models.data.corpus import Corpus
from models.data.vocabulary import END, PADDING, SPECIAL, START, id_of, train_word_tokenizer
from models.errors import DatasetError
from models.networks.elmo import Elmo, ElmoConfig
from models.recipes.pretrain import Pretraining, digest_of
from models.recipes.word_settings import ElmoSettings
from models.training.trainer import Judgement

NUM_AROUND = 2  # special tokens of a row


@dataclass(frozen=True, slots=True, eq=False)  # to find an order again hashes no rows
class Rows:
    """Lines of text as rows of token ids, between the special ones."""

    rows: tuple[tuple[int, ...], ...]
    pad_token_id: int
    seed: int = 0

    @classmethod
    def of(cls, documents: Sequence[str], tokenizer: Tokenizer, context: int, seed: int) -> "Rows":
        lines = [line for document in documents for line in document.splitlines() if line.strip()]
        start, end, pad = (id_of(tokenizer, token) for token in (START, END, PADDING))
        size = context - NUM_AROUND
        rows = tuple(
            (start, *encoding.ids[first : first + size], end)
            for encoding in tokenizer.encode_batch_fast(lines, add_special_tokens=False)
            for first in range(0, len(encoding.ids), size)
        )
        if not rows:
            raise DatasetError("there is no line with a word to learn from, or to measure on")
        return cls(rows, pad, seed)

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.rows))

    def digest(self) -> str:
        return digest_of(*(torch.tensor(row) for row in self.rows))

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """input_ids and attention_mask [B, S], int64."""
        return padded_inputs([self.rows[i] for i in indices], self.pad_token_id)

    def training_batch(self, number: int, size: int) -> tuple[Tensor, ...]:
        """Batch `number` of all epochs: in each of them every row once, in another order."""
        epoch, place = divmod(number, math.ceil(len(self.rows) / size))
        return self.batch(_order(self, size, epoch)[place])

    def first(self, max_rows: int) -> Iterator[tuple[Tensor, ...]]:
        """Batches of this number of rows, for measuring."""
        lengths = list(map(len, self.rows[:max_rows]))
        return map(self.batch, sorted_batches(lengths, ElmoSettings().batch_size))


@lru_cache(maxsize=2)
def _order(rows: Rows, size: int, epoch: int) -> list[list[int]]:
    return epoch_batches(list(map(len, rows.rows)), size, rows.seed, epoch)


@dataclass(frozen=True, slots=True)
class BothWays:
    """Say which token comes next, and which came before."""

    train: Rows
    held_out: Rows
    max_validation_rows: int

    @property
    def num_train_tokens(self) -> int:
        return self.train.num_tokens

    @property
    def num_validation_tokens(self) -> int:
        return self.held_out.num_tokens

    @property
    def tokens_per_window(self) -> float:
        return self.train.num_tokens / len(self.train.rows)

    def digest(self) -> str:
        return self.train.digest() + self.held_out.digest()

    def loss(self, model: nn.Module, first: int, count: int) -> Tensor:
        batch = self.train.training_batch(first // count, count)
        return cast(Elmo, model).losses(*batch).mean()

    def judge(self, model: nn.Module) -> Judgement:
        elmo = cast(Elmo, model)
        batches = self.held_out.first(self.max_validation_rows)
        losses = torch.cat([elmo.losses(*batch) for batch in batches], dim=1)
        forwards, backwards = losses.mean(dim=1).tolist()
        figures = {
            "forward_perplexity": math.exp(forwards),
            "backward_perplexity": math.exp(backwards),
        }
        return Judgement(figures, (forwards + backwards) / 2)


def both_ways(
    corpus: Corpus, tokenizer: Tokenizer, config: ElmoConfig, settings: ElmoSettings
) -> BothWays:
    train, held_out = (
        Rows.of(documents, tokenizer, config.max_positions, settings.seed)
        for documents in (corpus.train, corpus.validation)
    )
    return BothWays(train, held_out, settings.validation_windows)


def config_of(settings: ElmoSettings, tokenizer: Tokenizer) -> ElmoConfig:
    return ElmoConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        max_positions=settings.context,
        dropout=settings.dropout,
        pad_token_id=id_of(tokenizer, PADDING),
    )


PRETRAINING = Pretraining(
    train_tokenizer=lambda documents, settings: train_word_tokenizer(
        documents,
        settings.min_count,
        settings.vocab_size - len(SPECIAL),
        keeps_punctuation=True,
    ),
    config_of=config_of,
    build=lambda config, _: Elmo(config),
    objective=both_ways,
)
