"""Turn texts into right-padded batches of rows of similar length.

Knows nothing about models or training. The order of an epoch is a function of the seed and the
epoch's number, so a resumed run needs no stored order.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor

from models.data.datasets import Dataset
from models.data.tokenizer import cutting_copy
from models.remarks import remark

POOL_BATCHES = 32  # rows are sorted by length within pools of this number of batches


class Rows(Protocol):
    """The training data of a network, row by row."""

    def __len__(self) -> int: ...

    def lengths(self) -> list[int]: ...

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """The network's inputs, and after them the targets."""
        ...


class LabelledRows(Rows, Protocol):
    """Rows in the order of a dataset, with a label each: a batch's targets are [B]."""

    @property
    def targets(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class TokenizedDataset:
    """Token ids and label indices, row by row in the order of the dataset.

    With `token_types`, where a dataset has pairs of texts, they go into the network too.
    """

    rows: tuple[tuple[int, ...], ...]
    targets: tuple[int, ...]
    pad_token_id: int
    token_types: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def lengths(self) -> list[int]:
        return [len(row) for row in self.rows]

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """input_ids, attention_mask (and token_type_ids) [B, S], and targets [B], all int64."""
        inputs = padded_inputs([self.rows[i] for i in indices], self.pad_token_id)
        if self.token_types:
            inputs = *inputs, padded([self.token_types[i] for i in indices], 0)
        return *inputs, torch.tensor([self.targets[i] for i in indices])


def remark_on_cut(
    name: str, cut: Sequence[tuple[int, int]], num_texts: int, max_tokens: int
) -> None:
    """Say how many texts are cut, if any; each is a line and how many characters it has there."""
    if cut:
        line, num_characters = cut[0]
        remark(
            f"{name}: {len(cut)} of {num_texts} texts are longer than {max_tokens} tokens and cut "
            f"to that; the first is in line {line}, of {num_characters:,} characters"
        )


def padded_inputs(rows: Sequence[Sequence[int]], pad_token_id: int) -> tuple[Tensor, ...]:
    """input_ids and attention_mask, int64 [B, S]."""
    return padded(rows, pad_token_id), padded([[1] * len(row) for row in rows], 0)


def padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    """Rows of different lengths as int64 [B, S], S being the longest."""
    values = torch.full((len(rows), max(map(len, rows))), fill)
    for place, row in enumerate(rows):
        values[place, : len(row)] = torch.tensor(row)
    return values


def tokenize(
    dataset: Dataset,
    labels: Sequence[str],
    tokenizer: Tokenizer,
    max_tokens: int,
    pad_token_id: int,
) -> TokenizedDataset:
    """Tokenize all texts; those over `max_tokens` are cut, and of a pair the longer first.

    Remarks on those that are cut.
    """
    encodings = cutting_copy(tokenizer, max_tokens).encode_batch_fast(
        [example.text_or_pair for example in dataset.examples]
    )
    cut = [
        (example.line, len(example.text) + len(example.text_pair))
        for example, encoding in zip(dataset.examples, encodings, strict=True)
        if encoding.overflowing
    ]
    remark_on_cut(dataset.name, cut, len(dataset), max_tokens)
    index = {label: i for i, label in enumerate(labels)}
    return TokenizedDataset(
        rows=tuple(tuple(encoding.ids) for encoding in encodings),
        targets=tuple(index[example.label] for example in dataset.examples),
        pad_token_id=pad_token_id,
        token_types=tuple(tuple(encoding.type_ids) for encoding in encodings)
        if dataset.has_pairs
        else (),
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


class EpochBatches:
    """The batches of all epochs, by the number of the step that learns from each."""

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.per_epoch = -(-len(lengths) // batch_size)
        order_of = partial(epoch_batches, lengths, batch_size, seed)
        self._order = lru_cache(maxsize=1)(order_of)

    def __getitem__(self, step: int) -> list[int]:
        """Indices of rows."""
        epoch, place = divmod(step, self.per_epoch)
        return self._order(epoch)[place]


def sorted_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield indices of every row once, longest first: the least padding."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    return _chunks(order, batch_size)


def _chunks(items: Sequence[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
