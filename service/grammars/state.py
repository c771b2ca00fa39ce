"""One sequence's place in the grammar of its output: which tokens it may choose next.

A token that the model itself chooses is looked up first, which takes a few microseconds. Which
tokens of the whole vocabulary are allowed takes a hundred times as long, and is computed where the
last choice was not the model's own, or where a parameter needs it: by `prepare`, while the model
computes the logits, or at the latest when these are read. Both ways choose the same tokens,
whenever they are computed. An error of the grammar is kept, and ends the sequence when its next
token is due. Pure but for what `Matcher` does.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: V vocabulary

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from service.errors import InvalidArgument

T = TypeVar("T")
FEW = 16  # at most one of this number of tokens is allowed: only these are looked at
NO_TOKENS: tuple[int, ...] = ()
# float32 [256, 8] by a byte of a mask: what is added to the logits of its eight tokens.
_ALLOWED = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_BIASES = np.where(_ALLOWED, np.float32(0.0), np.float32(-np.inf))


class Matcher(Protocol):
    """A compiled grammar that follows one output, see `service/grammars/compiler.py`."""

    @property
    def forced(self) -> tuple[int, ...]: ...

    @property
    def mask(self) -> np.ndarray: ...

    def allows(self, token_id: int) -> bool: ...

    def take(self, token_id: int) -> None: ...

    def num_valid(self, token_ids: Sequence[int]) -> int: ...

    def copy(self) -> "Matcher": ...

    @property
    def is_accepting(self) -> bool: ...

    @property
    def is_complete(self) -> bool: ...


class GrammarState:
    """A matcher, with what it allows in the form that is fast to apply.

    `trusts_model` says that the model's own choice is likely to be allowed: its last one was.
    """

    def __init__(self, matcher: Matcher, ends: np.ndarray, *, needs_all: bool = False) -> None:
        """`ends` are ids that end the output, int64: allowed wherever it may end.

        With `needs_all` it is computed beforehand which tokens are allowed, as all of them count.
        """
        self._matcher = matcher
        self._ends = ends
        self._end_ids = frozenset(ends.tolist())
        self._needs_all = needs_all
        self._forced: tuple[int, ...] | None = None
        self._mask: np.ndarray | None = None  # uint8, a bit per token
        self._few: np.ndarray | None = None  # int64 ids, where few are allowed
        self.trusts_model = not needs_all
        self.failure: InvalidArgument | None = None

    def prepare(self) -> None:
        """Compute what the next choice needs, unless it is known."""
        if not self.forced and not self.trusts_model:
            self._fill()

    def take(self, token_id: int) -> None:
        """The next token; one that ends the output is not taken."""
        self._forced = self._mask = self._few = None
        self._kept(lambda: self._matcher.take(token_id), None)

    def fork(self) -> "GrammarState":
        """One that has taken the same, and goes on by itself."""
        other = GrammarState(self._matcher.copy(), self._ends, needs_all=self._needs_all)
        other.trusts_model, other.failure = self.trusts_model, self.failure
        return other

    @property
    def is_complete(self) -> bool:
        """Whether nothing can follow but the output's end."""
        return self.failure is None and self._matcher.is_complete

    @property
    def forced(self) -> tuple[int, ...]:
        """The tokens that come next, whatever the logits; mostly none."""
        if self._forced is None:
            self._forced = self._kept(lambda: self._matcher.forced, NO_TOKENS)
        return self._forced

    def num_valid(self, token_ids: np.ndarray) -> int:
        """Number of these tokens that may follow, one after the other."""
        return self._kept(lambda: self._matcher.num_valid(token_ids.tolist()), 0)

    def allows(self, token_id: int) -> bool:
        """Whether the model's own choice may come next, by which it is trusted with the next."""
        if forced := self.forced:
            return token_id == forced[0]
        if self.trusts_model:
            is_allowed = self._may_be(token_id)
        else:
            byte = self._fill()[token_id >> 3 :][:1]
            is_allowed = bool(byte.size and byte[0] >> (token_id & 7) & 1)
        self.trusts_model = is_allowed and not self._needs_all
        return is_allowed

    @property
    def few(self) -> np.ndarray | None:
        """The ids int64 that are allowed, ascending, if they are few; else None."""
        if forced := self.forced:
            return np.array(forced[:1], np.int64)
        mask = self._fill()
        if self._few is None and np.bitwise_count(mask.view(np.uint64)).sum() * FEW < mask.size * 8:
            places = np.flatnonzero(mask)
            bits = np.unpackbits(mask[places, None], axis=1, bitorder="little")
            rows, columns = np.nonzero(bits)
            self._few = places[rows] * 8 + columns
        return self._few

    def edit(self, logits_V: np.ndarray) -> None:
        """Ban what may not come next, in place."""
        if (few := self.few) is not None:
            kept = logits_V[few]
            logits_V.fill(-np.inf)
            logits_V[few] = kept
        else:
            biases_V = _BIASES.take(self._fill(), axis=0).reshape(-1)
            logits_V += biases_V[: logits_V.size]

    def _may_be(self, token_id: int) -> bool:
        if token_id in self._end_ids and self.failure is None and self._matcher.is_accepting:
            return True
        return self._kept(lambda: self._matcher.allows(token_id), False)

    def _fill(self) -> np.ndarray:
        """Which tokens are allowed, in whole words of 64 bits; none after an error."""
        if self._mask is None:
            self._mask = self._kept(lambda: self._matcher.mask, np.zeros(8, np.uint8))
            if self._ends.size and self.failure is None and self._matcher.is_accepting:
                np.bitwise_or.at(self._mask, self._ends >> 3, _bits_of(self._ends))
        return self._mask

    def _kept(self, ask: Callable[[], T], otherwise: T) -> T:
        """The matcher's answer; from an error on, `otherwise`."""
        if self.failure is None:
            try:
                return ask()
            except InvalidArgument as error:
                self.failure = error
        return otherwise


def _bits_of(token_ids: np.ndarray) -> np.ndarray:
    bits: np.ndarray = np.left_shift(1, token_ids & 7).astype(np.uint8)
    return bits
