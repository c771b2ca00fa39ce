"""Which pieces of prefixes a store keeps and gives back: replayed, and over random texts.

A memory of lists stands for keys and values: a token's are its id with the namespace and all ids
before it, so that a piece from another text, or of another place, is another list.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.generation.cache.prefix_store import KEY_BYTES, PIECE_TOKENS, PrefixStore

SLOT = 0
Cached = tuple[str, tuple[int, ...]]  # a token's keys and values: of what they were computed


class ListMemory:
    """Places for pieces of one slot, which is a list; counts what is written."""

    piece_bytes = 100

    def __init__(self, num_places: int) -> None:
        self.num_places = num_places
        self.slot: list[Cached] = []
        self.places: dict[int, list[Cached]] = {}
        self.num_writes = 0

    def write(self, place: int, slot: int, start: int) -> None:
        assert (slot, 0 <= place < self.num_places) == (SLOT, True)
        self.places[place] = self.slot[start : start + PIECE_TOKENS]
        assert len(self.places[place]) == PIECE_TOKENS, "keeps what was never computed"
        self.num_writes += 1

    def read(self, place: int, slot: int, start: int) -> None:
        assert (slot, len(self.slot)) == (SLOT, start), "leaves a gap"
        self.slot += self.places[place]


class Rig:
    """A store, and the texts that go through its one slot."""

    def __init__(self, num_places: int, key_bytes: int = KEY_BYTES) -> None:
        self.memory = ListMemory(num_places)
        self.store = PrefixStore(self.memory, key_bytes=key_bytes)

    def keep(self, ids: Sequence[int], namespace: str = "") -> None:
        self.memory.slot = computed(ids, namespace)
        self.store.keep(namespace, np.array(ids, np.int32), SLOT)
        self.check()

    def restore(self, ids: Sequence[int], namespace: str = "") -> int:
        """The tokens that come back, which are the right ones."""
        self.memory.slot = []
        num_kept = self.store.num_kept(namespace, np.array(ids, np.int32))
        num_tokens = self.store.restore(namespace, np.array(ids, np.int32), SLOT)
        assert num_tokens == num_kept == len(self.memory.slot)
        assert self.memory.slot == computed(ids, namespace)[:num_tokens], "another text's"
        self.check()
        return num_tokens

    def check(self) -> None:
        self.store.check_integrity()
        assert self.store.num_bytes <= self.memory.num_places * ListMemory.piece_bytes


def computed(ids: Sequence[int], namespace: str) -> list[Cached]:
    return [(namespace, tuple(ids[: end + 1])) for end in range(len(ids))]


def text_of(*pieces: int, rest: int = 0) -> list[int]:
    """Whole pieces, each of one repeated id, and further tokens."""
    return [each for piece in pieces for each in [piece] * PIECE_TOKENS] + [0] * rest


def test_a_text_comes_back_as_far_as_it_is_the_same_in_whole_pieces() -> None:
    rig = Rig(8)
    rig.keep(text_of(1, 2, 3, rest=5))
    assert repr(rig.store) == "<PrefixStore 3 of 8 pieces>"
    assert rig.store.num_bytes == 300
    assert rig.restore(text_of(1, 2, 3, 4)) == 3 * PIECE_TOKENS
    assert rig.restore(text_of(1, 2, 4)) == 2 * PIECE_TOKENS
    assert rig.restore(text_of(1, 2)[:-1]) == PIECE_TOKENS
    assert rig.restore(text_of(2, 3)) == 0
    assert rig.restore([]) == 0


def test_a_piece_is_written_once_for_all_texts_that_have_it() -> None:
    rig = Rig(8)
    rig.keep(text_of(1, 2))
    rig.keep(text_of(1, 2, 3))
    rig.keep(text_of(1, 2, 4))
    assert rig.memory.num_writes == 4


def test_namespaces_share_nothing() -> None:
    rig = Rig(8)
    rig.keep(text_of(1, 2), "blue")
    assert rig.restore(text_of(1, 2)) == rig.restore(text_of(1, 2), "red") == 0
    assert rig.restore(text_of(1, 2), "blue") == 2 * PIECE_TOKENS
    rig.keep(text_of(1), "\ud800")  # no character, and JSON can spell it
    assert rig.restore(text_of(1), "\ud800") == PIECE_TOKENS


def test_the_least_recently_used_text_goes_first_and_its_end_before_its_beginning() -> None:
    """Four places: 1-2 and 3-4 are kept, 1-2 is used; each further piece costs 4, then 3."""
    rig = Rig(4)
    rig.keep(text_of(1, 2))
    rig.keep(text_of(3, 4))
    assert rig.restore(text_of(1, 2)) == 2 * PIECE_TOKENS
    rig.keep(text_of(5))
    assert rig.store.num_evictions == 1
    assert rig.restore(text_of(1, 2)) == 2 * PIECE_TOKENS
    rig.keep(text_of(6))
    assert [rig.restore(text_of(*each)) for each in ((1, 2), (3, 4), (5,), (6,))] == [
        2 * PIECE_TOKENS,
        0,
        PIECE_TOKENS,
        PIECE_TOKENS,
    ]


def test_looking_for_a_text_counts_as_using_it() -> None:
    """Who waits for a slot finds what was there when it was looked for."""
    rig = Rig(2)
    rig.keep(text_of(1))
    rig.keep(text_of(2))
    assert rig.store.num_kept("", np.array(text_of(1), np.int32)) == PIECE_TOKENS
    rig.keep(text_of(3))
    assert rig.restore(text_of(1)) == PIECE_TOKENS
    assert rig.restore(text_of(2)) == 0


def test_a_text_longer_than_the_store_has_its_beginning_there() -> None:
    rig = Rig(3)
    rig.keep(text_of(9))
    rig.keep(text_of(1, 2, 3, 4, 5))
    assert rig.restore(text_of(1, 2, 3, 4, 5)) == 3 * PIECE_TOKENS
    assert rig.store.num_evictions == 1


TEXTS = st.lists(st.integers(0, 2), max_size=6).map(lambda pieces: text_of(*pieces, rest=3))
ACTIONS = st.lists(st.tuples(st.booleans(), TEXTS, st.sampled_from(["", "a", "b"])), max_size=40)


@given(actions=ACTIONS, num_places=st.integers(1, 12), key_bytes=st.sampled_from([1, KEY_BYTES]))
def test_no_text_ever_gets_another_s_tokens(
    actions: list[tuple[bool, list[int], str]], num_places: int, key_bytes: int
) -> None:
    """Also where hashes have a byte, so that many are equal; the bound on bytes always holds."""
    rig = Rig(num_places, key_bytes)
    for is_kept, ids, namespace in actions:
        if is_kept:
            rig.keep(ids, namespace)
            is_sure = key_bytes == KEY_BYTES
            num_least = min(len(ids) // PIECE_TOKENS, num_places) * PIECE_TOKENS
            assert not is_sure or rig.restore(ids, namespace) == num_least
        else:
            rig.restore(ids, namespace)


class Reference:
    """The same as lists: pieces as whole beginnings, in the order of their use."""

    def __init__(self, num_places: int) -> None:
        self.num_places = num_places
        self.used: list[tuple[int, ...]] = []  # the next to go first

    def use(self, ids: list[int], *, keeps: bool) -> int:
        ends = range(PIECE_TOKENS, len(ids) + 1, PIECE_TOKENS)
        chain = [tuple(ids[:end]) for end in ends][: self.num_places if keeps else None]
        count = next((i for i, each in enumerate(chain) if each not in self.used), len(chain))
        chain = chain if keeps else chain[:count]
        self.used = [each for each in self.used if each not in chain] + chain[::-1]
        self.used = self.used[-self.num_places :]
        return count * PIECE_TOKENS


@given(actions=ACTIONS, num_places=st.integers(1, 8))
def test_what_is_kept_is_what_was_used_last(
    actions: list[tuple[bool, list[int], str]], num_places: int
) -> None:
    """Against lists of whole beginnings."""
    rig, reference = Rig(num_places), Reference(num_places)
    for is_kept, ids, _ in actions:
        if is_kept:
            rig.keep(ids)
            reference.use(ids, keeps=True)
        else:
            assert rig.restore(ids) == reference.use(ids, keeps=False)


def test_the_check_of_integrity_notices() -> None:
    rig = Rig(2)
    rig.keep(text_of(1, 2))
    (last, first), kept = list(rig.store._kept), rig.store._kept
    kept.move_to_end(last)
    with pytest.raises(AssertionError, match="kept longer than the one before it"):
        rig.store.check_integrity()
    del kept[first]
    with pytest.raises(AssertionError, match="a place is lost"):
        rig.store.check_integrity()
