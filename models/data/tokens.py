"""Pairs of texts as rows of token ids, and batches of them.

Knows nothing about networks. Special tokens have fixed places in every vocabulary of symbols.
"""
# ruff: noqa: N806 - suffixes are array layouts: N pairs, B rows, S source, T target tokens

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor

from models.data.batches import padded
from models.data.pairs import MAX_LENGTH, Pair
from models.errors import DatasetError

PAD, START, END, UNKNOWN = SPECIAL_TOKENS = ("[PAD]", "[START]", "[END]", "[UNK]")


class SpecialTokens(Protocol):
    """The tokens with a special meaning."""

    @property
    def pad_token_id(self) -> int: ...

    @property
    def start_token_id(self) -> int: ...

    @property
    def end_token_id(self) -> int: ...


class Batch(NamedTuple):
    """int64 rows, padded on the right to the longest of each side."""

    source: Tensor  # [B, S]
    mask: Tensor  # [B, S], 1 where there is a token of the source
    before: Tensor  # [B, T], the target behind its start: what the decoder reads
    target: Tensor  # [B, T], the target with its end: what it is to say


class TokenizedPairs:
    """All pairs as two padded matrices, of which a batch takes rows; a target has its end."""

    def __init__(
        self, pairs: Sequence[Pair], tokenizer: Tokenizer, tokens: SpecialTokens, name: str
    ) -> None:
        sources = source_rows(tokenizer, pairs, name)
        targets = target_rows(tokenizer, pairs, name)
        end = tokens.end_token_id
        self.source_lengths = torch.tensor([len(row) for row in sources])
        self.target_lengths = torch.tensor([len(row) + 1 for row in targets])
        self.source_NS = padded(sources, tokens.pad_token_id)
        self.target_NT = padded([[*row, end] for row in targets], tokens.pad_token_id)
        self._start_token_id = tokens.start_token_id

    def __len__(self) -> int:
        return len(self.source_NS)

    def lengths(self) -> list[int]:
        """Tokens of each pair."""
        lengths: list[int] = (self.source_lengths + self.target_lengths).tolist()
        return lengths

    def batch(self, indices: Sequence[int]) -> Batch:
        rows = torch.tensor(indices)
        lengths_B = self.source_lengths[rows]
        source_BS = self.source_NS[rows, : int(lengths_B.max())]
        target_BT = self.target_NT[rows, : int(self.target_lengths[rows].max())]
        start_B1 = torch.full_like(target_BT[:, :1], self._start_token_id)
        return Batch(
            source_BS,
            (torch.arange(source_BS.shape[1]) < lengths_B[:, None]).long(),
            torch.cat((start_B1, target_BT[:, :-1]), dim=1),
            target_BT,
        )


def symbols_tokenizer(pairs: Iterable[Pair]) -> Tokenizer:
    """A token for each symbol between spaces, on either side; others are unknown."""
    symbols = {symbol for pair in pairs for text in pair for symbol in text.split()}
    ordinary = sorted(symbols - set(SPECIAL_TOKENS))
    vocabulary = {token: i for i, token in enumerate((*SPECIAL_TOKENS, *ordinary))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def longest(tokenizer: Tokenizer, pairs: Sequence[Pair], name: str) -> int:
    """Tokens of the longest text on either side, a target's end counted."""
    sources = source_rows(tokenizer, pairs, name)
    targets = target_rows(tokenizer, pairs, name)
    return max(max(map(len, sources)), max(map(len, targets)) + 1)


def source_rows(tokenizer: Tokenizer, pairs: Iterable[Pair], name: str) -> list[list[int]]:
    """Token ids of sources, as the tokenizer gives them, special tokens included."""
    encodings = tokenizer.encode_batch_fast([pair.source for pair in pairs])
    return _checked([encoding.ids for encoding in encodings], name)


def target_rows(tokenizer: Tokenizer, pairs: Iterable[Pair], name: str) -> list[list[int]]:
    """Token ids of targets: nothing stands before or after them."""
    texts = [pair.target for pair in pairs]
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return _checked([encoding.ids for encoding in encodings], name)


def _checked(rows: list[list[int]], name: str) -> list[list[int]]:
    for row in rows:
        if not 0 < len(row) <= MAX_LENGTH:
            raise DatasetError(
                f"{name}: a text has {len(row)} tokens, it must have 1 to {MAX_LENGTH}"
            )
    return rows
