"""Turn texts into right-padded batches of rows of similar length.

Knows nothing about models or training. The order of an epoch is a function of the seed and the
epoch's number, so a resumed run needs no stored order.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor

from models.datasets import Dataset
from models.tokenizer import cutting_copy

POOL_BATCHES = 32  # rows are sorted by length within pools of so many batches


class Rows(Protocol):
    """What a classifier learns from, row by row in the order of a dataset."""

    @property
    def targets(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def lengths(self) -> list[int]: ...

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """What the network takes, and after it the targets [B]."""
        ...


@dataclass(frozen=True, slots=True)
class TokenizedDataset:
    """Token ids and label indices, row by row in the order of the dataset."""

    rows: tuple[tuple[int, ...], ...]
    targets: tuple[int, ...]
    pad_token_id: int

    def __len__(self) -> int:
        return len(self.rows)

    def lengths(self) -> list[int]:
        return [len(row) for row in self.rows]

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """input_ids [B, S], attention_mask [B, S] and targets [B], all int64."""
        num_tokens = max(len(self.rows[i]) for i in indices)
        input_ids = torch.full((len(indices), num_tokens), self.pad_token_id)
        attention_mask = torch.zeros_like(input_ids)
        for place, i in enumerate(indices):
            row = self.rows[i]
            input_ids[place, : len(row)] = torch.tensor(row)
            attention_mask[place, : len(row)] = 1
        return input_ids, attention_mask, torch.tensor([self.targets[i] for i in indices])


def tokenize(
    dataset: Dataset,
    labels: Sequence[str],
    tokenizer: Tokenizer,
    max_tokens: int,
    pad_token_id: int,
) -> TokenizedDataset:
    """Tokenize all texts; those longer than `max_tokens` are cut."""
    encodings = cutting_copy(tokenizer, max_tokens).encode_batch_fast(
        [example.text for example in dataset.examples]
    )
    index = {label: i for i, label in enumerate(labels)}
    return TokenizedDataset(
        rows=tuple(tuple(encoding.ids) for encoding in encodings),
        targets=tuple(index[example.label] for example in dataset.examples),
        pad_token_id=pad_token_id,
    )


def epoch_batches(
    lengths: Sequence[int], batch_size: int, seed: int, epoch: int
) -> list[list[int]]:
    """Return indices of every row once, in random batches whose rows have similar lengths."""
    shuffler = random.Random(f"epoch {epoch} of {seed}")  # noqa: S311 - to reproduce
    order = list(range(len(lengths)))
    shuffler.shuffle(order)
    pools = _chunks(order, POOL_BATCHES * batch_size)
    batches = [
        batch
        for pool in pools
        for batch in _chunks(sorted(pool, key=lambda i: lengths[i]), batch_size)
    ]
    shuffler.shuffle(batches)
    return batches


def sorted_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield indices of every row once, longest first: the least padding."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    return _chunks(order, batch_size)


def _chunks(items: Sequence[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
