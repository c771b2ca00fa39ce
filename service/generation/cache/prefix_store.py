"""Beginnings of prompts that outlast their slots: pieces of them, by a chain of hashes.

Pure accounting: keys and values are copied between slots and places of a `PrefixMemory`. Everything
here is the engine thread's own.

A piece is `PIECE_TOKENS` neighbouring tokens of one sequence in every layer. It is known by a hash
of its namespace, its tokens and all tokens before it, so that texts which begin alike share pieces.
Namespace, tokens and the piece before are compared too: where two hashes are equal and these are
not, nothing is found. Prompts of different namespaces never share.

The least recently used piece is given up first. A piece counts as used after those that follow it
in its text, so that the end of a text goes before its beginning, and no piece is kept without
those before it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import numpy as np

PIECE_TOKENS = 32  # half of it, on average, is computed although a prompt before had it
KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a text, by all that it is compared in."""

    key: bytes
    namespace: str
    token_ids: bytes  # of int32
    before: bytes  # the key of the piece that it follows; of a text's first, the namespace's
    index: int  # in its text


@dataclass(frozen=True, slots=True)
class _Kept:
    """A piece in the store, and where its keys and values are."""

    piece: _Piece
    place: int


class PrefixMemory(Protocol):
    """Places for pieces of slots, as a `PrefixStore` gives them out."""

    @property
    def num_places(self) -> int: ...

    @property
    def piece_bytes(self) -> int: ...

    def write(self, place: int, slot: int, start: int) -> None:
        """Copy a slot's tokens from `start` on, as many as a piece has, to a place."""
        ...

    def read(self, place: int, slot: int, start: int) -> None:
        """Copy a place to a slot's tokens from `start` on."""
        ...


class PrefixStore:
    """Pieces of prefixes, as many as a memory has places; the least recently used leaves first."""

    def __init__(self, memory: PrefixMemory, *, key_bytes: int = KEY_BYTES) -> None:
        assert memory.num_places >= 1, "a store needs at least one place"
        self._memory = memory
        self._num_places = memory.num_places
        self._key_bytes = key_bytes
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()  # by key, the next to go first
        self.num_evictions = 0  # pieces given up for others

    def __repr__(self) -> str:
        return f"<PrefixStore {len(self._kept)} of {self._num_places} pieces>"

    @property
    def num_bytes(self) -> int:
        """The bytes of the pieces that are kept."""
        return len(self._kept) * self._memory.piece_bytes

    def keep(self, namespace: str, token_ids: np.ndarray, slot: int) -> None:
        """Keep a slot's tokens, int32: whole pieces from the first on, as many as have a place.

        Those that are kept already are not copied again.
        """
        pieces = list(self._pieces_of(namespace, token_ids))[: self._num_places]
        num_kept = len(self._use(self._find(pieces)))  # before others are given up
        for piece in pieces[num_kept:]:
            if piece.key in self._kept:  # another one with the same hash
                break
            place = self._take_place()
            self._memory.write(place, slot, piece.index * PIECE_TOKENS)
            self._kept[piece.key] = _Kept(piece, place)
        self._use(self._find(pieces))

    def num_kept(self, namespace: str, token_ids: np.ndarray) -> int:
        """Number of the first of these tokens, int32, that are kept. They count as used."""
        return len(self._use(self._find(self._pieces_of(namespace, token_ids)))) * PIECE_TOKENS

    def restore(self, namespace: str, token_ids: np.ndarray, slot: int) -> int:
        """Copy what is kept of these tokens' beginning to a slot; the number of tokens copied."""
        found = self._use(self._find(self._pieces_of(namespace, token_ids)))
        for kept in found:
            self._memory.read(kept.place, slot, kept.piece.index * PIECE_TOKENS)
        return len(found) * PIECE_TOKENS

    def check_integrity(self) -> None:
        """Recount everything. Raises `AssertionError` saying what does not add up."""
        places = sorted(kept.place for kept in self._kept.values())
        assert places == list(range(len(places))), "a place is lost, or has two pieces"
        assert len(places) <= self._num_places, "more pieces than places"
        used_later: set[bytes] = set()
        for key, kept in reversed(self._kept.items()):
            is_first = kept.piece.index == 0
            is_next = kept.piece.before in used_later
            assert is_first or is_next, "a piece is kept longer than the one before it"
            used_later.add(key)

    def _find(self, pieces: Iterable[_Piece]) -> list[_Kept]:
        """Kept pieces of a text, up to the first that is absent."""
        found: list[_Kept] = []
        for piece in pieces:
            kept = self._kept.get(piece.key)
            if kept is None or kept.piece != piece:
                break
            found.append(kept)
        return found

    def _use(self, found: list[_Kept]) -> list[_Kept]:
        """Count a text's pieces as used, its first one last."""
        for kept in reversed(found):
            self._kept.move_to_end(kept.piece.key)
        return found

    def _pieces_of(self, namespace: str, token_ids: np.ndarray) -> Iterator[_Piece]:
        before = self._key_of(namespace.encode(errors="surrogatepass"), b"")
        for index in range(len(token_ids) // PIECE_TOKENS):
            part = token_ids[index * PIECE_TOKENS :][:PIECE_TOKENS].tobytes()
            key = self._key_of(part, before)
            yield _Piece(key, namespace, part, before, index)
            before = key

    def _key_of(self, part: bytes, before: bytes) -> bytes:
        return blake2b(part, digest_size=self._key_bytes, key=before).digest()

    def _take_place(self) -> int:
        """The place of a further piece: the next one, or that of the least recently used piece."""
        if len(self._kept) < self._num_places:
            return len(self._kept)
        _, kept = self._kept.popitem(last=False)
        self.num_evictions += 1
        return kept.place
