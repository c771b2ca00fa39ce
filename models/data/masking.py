"""Choose the tokens that a model is to predict, and hide most of them (Devlin et al. 2018, 3.1).

Knows nothing about models. Of the chosen tokens 80 % become [MASK], 10 % another token and 10 %
stay: the model cannot tell which of the words that it sees are right, so it must know all of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.data.sentence_pairs import Pair, Pairs
from models.data.word_pieces import SpecialTokens

MASKED_SHARE, REPLACED_SHARE = 0.8, 0.1  # of the chosen tokens; the others stay as they are
UNCHOSEN = -100  # as a target: what PyTorch's cross entropy leaves out


@dataclass(frozen=True, slots=True)
class Batch:
    """Right-padded rows, int64 [B, S] all but the last."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor
    targets: Tensor  # the right token where one was chosen, else UNCHOSEN
    relations: Tensor  # [B]


class MaskedPairs:
    """Batches of masked pairs, `[CLS] one [SEP] other [SEP]`: functions of their pairs' numbers."""

    def __init__(
        self, pairs: Pairs, special: SpecialTokens, vocab_size: int, chosen_share: float
    ) -> None:
        self.pairs = pairs
        self._special = special
        self._chosen_share = chosen_share
        self._is_word = np.ones(vocab_size, bool)
        self._is_word[list(special.all)] = False
        self._words = np.flatnonzero(self._is_word)

    def batch(self, first: int, count: int) -> Batch:
        """Pairs `first`, `first + 1`, ..."""
        rows = [self._row(number) for number in range(first, first + count)]
        num_tokens = max(len(row[0]) for row in rows)
        lengths = torch.tensor([len(row[0]) for row in rows])
        return Batch(
            input_ids=_padded((row[0] for row in rows), num_tokens, self._special.pad),
            attention_mask=(torch.arange(num_tokens) < lengths[:, None]).long(),
            token_type_ids=_padded((row[1] for row in rows), num_tokens, 0),
            targets=_padded((row[2] for row in rows), num_tokens, UNCHOSEN),
            relations=torch.tensor([row[3] for row in rows]),
        )

    def _row(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Ids, token types and targets of a pair, and its relation."""
        pair = self.pairs[number]
        seed = np.frombuffer(f"mask {number} of {self.pairs.seed}".encode(), np.uint8)
        ids, types = self._set(pair)
        seen, targets = self._masked(ids, np.random.default_rng(seed.tolist()))
        return seen, types, targets, pair.relation

    def _set(self, pair: Pair) -> tuple[np.ndarray, np.ndarray]:
        start, separator = self._special.first, self._special.separator
        ids = np.concatenate([[start], pair.first, [separator], pair.second, [separator]])
        types = np.zeros(len(ids), np.int64)
        types[len(pair.first) + 2 :] = 1
        return ids, types

    def _masked(
        self, ids: np.ndarray, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """The model's input, and the targets."""
        words = np.flatnonzero(self._is_word[ids])
        count = min(len(words), max(1, round(self._chosen_share * len(words))))
        chosen = generator.choice(words, count, replace=False)
        fates = generator.random(count)
        others = generator.choice(self._words, count)
        seen, targets = ids.copy(), np.full(len(ids), UNCHOSEN)
        targets[chosen] = ids[chosen]
        is_masked = fates < MASKED_SHARE
        is_replaced = ~is_masked & (fates < MASKED_SHARE + REPLACED_SHARE)
        seen[chosen[is_masked]] = self._special.mask
        seen[chosen[is_replaced]] = others[is_replaced]
        return seen, targets


def _padded(rows: Iterable[np.ndarray], num_tokens: int, fill: int) -> Tensor:
    padded = [np.pad(row, (0, num_tokens - len(row)), constant_values=fill) for row in rows]
    return torch.from_numpy(np.stack(padded)).long()
