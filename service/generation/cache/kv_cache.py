"""Which rows of the key/value buffers belong to which sequence, and which tokens they hold.

Pure accounting: the arrays belong to the session, and `copy` is how rows are copied in them.
Everything here is the engine thread's own.

A slot is one row of `[slots, Hkv, T, Dh]` in every layer. Slots come in this order:

    [0, num_decoding)           sequences that decode, without gaps: a session run takes a range
    [num_decoding, num_slots)   sequences in prefill, idle slots, empty slots, in any order

An idle slot keeps the tokens of a sequence that ended, so that a prompt which begins like them can
copy what was computed. Where slots keep states too, which are of all tokens of a slot, a prompt
copies them all or none. The least recently used idle slot is freed first, and its tokens go into a
store of prefixes where there is one. Prompts share nothing with those of other namespaces. Slots
are used from the lowest, at most twice as many as the sequences that ran at once, or `MIN_REACH`:
memory that was never written is not allocated, so a cache takes what its load needs and not what it
may take.

When a sequence ends inside the first range, the range's last sequence takes its place: one running
row moves, and what the ended one leaves behind moves out of the way if there is a slot worth less.
"""

from collections.abc import Callable, Collection
from collections.abc import Sequence as Many

import numpy as np

from service.generation.cache.prefix_store import PrefixStore
from service.generation.sequence import Sequence

# Source slot, target slot, number of tokens, and how many of them the target has already.
Copy = Callable[[int, int, int, int], None]
MIN_REACH = 8  # slots that may be written to, however few sequences ran at once
MIN_KEPT_TOKENS = 16  # shorter beginnings are computed sooner than looked for and copied


class KVCache:
    """Slots, their tokens and their owners. `num_decoding` sequences are in the first slots."""

    def __init__(
        self,
        num_slots: int,
        max_tokens: int,
        copy: Copy,
        *,
        can_save: bool = True,
        store: PrefixStore | None = None,
        copies_whole: bool = False,
    ) -> None:
        assert num_slots >= 1, "a cache needs at least one slot"
        self.num_slots = num_slots
        self.max_tokens = max_tokens
        self.num_decoding = 0
        self.num_moved_rows = 0
        self._copy = copy
        self._can_save = can_save  # what is in the way is worth a copy of its own
        self._store = store  # of what has no slot left
        self._copies_whole = copies_whole  # a slot, or nothing of it
        self._token_ids = np.zeros((num_slots, max_tokens), np.int32)
        self._lengths = np.zeros(num_slots, np.int64)  # tokens whose keys and values are there
        self._last_used = np.zeros(num_slots, np.int64)  # by a counter; 0 for an empty slot
        self._namespaces = [""] * num_slots  # of the tokens
        self._owners: list[Sequence | None] = [None] * num_slots
        self._clock = 0
        self._reach = min(MIN_REACH, num_slots)  # the slots from here on were never written to

    def __repr__(self) -> str:
        return (
            f"<KVCache {self.num_slots} slots: {self.num_decoding} decode, "
            f"{self.num_used - self.num_decoding} in prefill, {self.num_tokens} tokens>"
        )

    @property
    def num_used(self) -> int:
        """Slots that belong to a sequence."""
        return sum(owner is not None for owner in self._owners)

    @property
    def num_places(self) -> int:
        """The slots that there are."""
        return self.num_slots

    @property
    def num_taken_places(self) -> int:
        """Number of slots in use: each has room for the longest sequence."""
        return self.num_used

    @property
    def num_tokens(self) -> int:
        """Tokens whose keys and values belong to a sequence."""
        return sum(owner.num_computed_tokens for owner in self._owners if owner is not None)

    @property
    def num_idle_tokens(self) -> int:
        """Tokens kept for prompts to come."""
        return int(self._lengths.sum()) - self.num_tokens

    @property
    def num_stored_bytes(self) -> int:
        """The memory of prefixes that have no slot."""
        return self._store.num_bytes if self._store else 0

    @property
    def num_evictions(self) -> int:
        """The pieces of prefixes that were given up so far."""
        return self._store.num_evictions if self._store else 0

    def decoding(self) -> list[Sequence]:
        """The sequences that decode, by slot."""
        owners = [owner for owner in self._owners[: self.num_decoding] if owner is not None]
        assert len(owners) == self.num_decoding, "a gap among the decoding slots"
        return owners

    def find_prefix(self, token_ids: np.ndarray, namespace: str = "") -> tuple[int, int]:
        """The slot whose tokens agree longest with the beginning of these, and how long."""
        count = min(len(token_ids), self.max_tokens)
        if not count:
            return 0, 0
        is_same = self._token_ids[:, :count] == token_ids[:count]
        agreeing = np.where(is_same.all(axis=1), count, is_same.argmin(axis=1))
        is_near = np.array([other == namespace for other in self._namespaces])
        lengths = np.minimum(agreeing, self._lengths) * is_near
        if self._copies_whole:
            lengths *= lengths == self._lengths
        slot = int(lengths.argmax())
        return slot, int(lengths[slot])

    def num_stored(self, token_ids: np.ndarray, namespace: str = "") -> int:
        """Number of tokens of the beginning of these that the store has."""
        return self._store.num_kept(namespace, token_ids) if self._store else 0

    def claim(self, sequences: Many[Sequence]) -> None:
        """Give the sequences empty slots side by side, next to those that decode."""
        slots = range(self.num_decoding, self.num_decoding + len(sequences))
        for slot, sequence in zip(slots, sequences, strict=True):
            self._vacate(slot, reserved=slots)
            self._own(slot, sequence)

    def claim_with_prefix(self, sequence: Sequence, source: int, num_tokens: int) -> None:
        """Give a slot whose first tokens are copied from `source`, which keeps its own."""
        assert 0 < num_tokens <= min(self._lengths[source], sequence.num_tokens - 1), (
            "the last token is always computed, for its logits"
        )
        self._touch(source)  # lest it be given up for what is in the way
        slot = self.num_decoding
        if slot != source:
            self._vacate(slot, reserved=(slot,))
            self._copy_row(source, slot, num_tokens)
        elif self._lengths[source] >= num_tokens + MIN_KEPT_TOKENS:
            self._save(source, reserved=(source,))
        self._own(slot, sequence)
        self._record(sequence, 0, num_tokens)
        sequence.num_reused_tokens = num_tokens

    def claim_stored(self, sequence: Sequence) -> None:
        """Give a slot whose first tokens come from the store: as many as it still has.

        Room for what was in the slot may have been made of them.
        """
        assert self._store is not None, "something was found in it"
        slot = self.num_decoding
        self._vacate(slot, reserved=(slot,))
        wanted = sequence.token_ids[: sequence.num_tokens - 1]
        num_tokens = self._store.restore(sequence.request.namespace, wanted, slot)
        self._own(slot, sequence)
        self._record(sequence, 0, num_tokens)
        sequence.num_reused_tokens = sequence.num_stored_tokens = num_tokens

    def advance(self, sequence: Sequence, num_tokens: int) -> None:
        """A run has computed the sequence's next tokens."""
        self._record(sequence, sequence.num_computed_tokens, num_tokens)

    def promote(self, sequence: Sequence) -> None:
        """The sequence's prompt is computed: it joins those that decode."""
        slot, target = self._slot_of(sequence), self.num_decoding
        assert slot >= target, "it decodes already"
        if slot != target:
            self._vacate(target, reserved=(target, slot))
            self._move(slot, target)
        self.num_decoding += 1

    def fork(self, source: Sequence, target: Sequence) -> None:
        """Copy a decoding sequence's tokens to another sequence, which decodes beside it.

        The other one may have a slot already, of which it keeps what is the same.
        """
        if target.slot is None:
            self._make_way()
            self.claim([target])
            self.num_decoding += 1
        one, other = self._slot_of(source), self._slot_of(target)
        num_both = int(min(self._lengths[one], self._lengths[other]))
        is_same = self._token_ids[one, :num_both] == self._token_ids[other, :num_both]
        num_same = num_both if is_same.all() else int(is_same.argmin())
        self._copy_row(one, other, int(self._lengths[one]), num_same)
        target.num_computed_tokens = source.num_computed_tokens
        self._touch(other)

    def release(self, sequence: Sequence, *, is_sound: bool = True) -> None:
        """The sequence ended. Its tokens stay for others unless a failed run left them unsound."""
        slot, last = self._slot_of(sequence), self.num_decoding - 1
        self._owners[slot], sequence.slot = None, None
        if is_sound:
            self._touch(slot)
        else:
            self._empty(slot)
        if slot > last:
            return
        if slot != last:
            self._vacate(slot, reserved=(slot, last))
            self._move(last, slot)
        self.num_decoding -= 1

    def check_integrity(self, sequences: Collection[Sequence]) -> None:
        """Recount all slots; `sequences` are all that should have one.

        Raises `AssertionError` saying what does not add up. A store, of thousands of pieces, is
        recounted by tests only.
        """
        owned = {slot: owner for slot, owner in enumerate(self._owners) if owner is not None}
        assert set(owned.values()) == set(sequences), "a slot is leaked, or a sequence lost its own"
        assert len(owned) == len(sequences), "a sequence has two slots"
        assert all(slot in owned for slot in range(self.num_decoding)), "a gap among those decoding"
        for slot, owner in owned.items():
            length = owner.num_computed_tokens
            assert owner.slot == slot, f"{owner} is in slot {slot}"
            assert not owner.is_finished, f"{owner} has ended and keeps slot {slot}"
            assert self._lengths[slot] == length, f"{owner} has {self._lengths[slot]} in its slot"
            kept = self._token_ids[slot, :length]
            assert np.array_equal(kept, owner.token_ids[:length]), f"others' tokens in {owner}"
            is_own = self._namespaces[slot] == owner.request.namespace
            assert is_own, f"another namespace's tokens in {owner}"
            is_decoding = owner.num_uncomputed_tokens == 1 and length > 0
            assert is_decoding == (slot < self.num_decoding), f"{owner} is out of place"
        assert not self._lengths[self._reach :].any(), "a slot beyond the load's reach is in use"
        for slot in set(range(self.num_slots)) - owned.keys():
            is_empty = self._lengths[slot] == 0
            assert is_empty == (self._last_used[slot] == 0), f"idle slot {slot} is half empty"

    def _slot_of(self, sequence: Sequence) -> int:
        assert sequence.slot is not None, f"{sequence} has no slot"
        return sequence.slot

    def _own(self, slot: int, sequence: Sequence) -> None:
        self._owners[slot], sequence.slot = sequence, slot
        self._reach = min(self.num_slots, max(self._reach, 2 * self.num_used, slot + 1))
        self._namespaces[slot] = sequence.request.namespace
        self._lengths[slot] = sequence.num_computed_tokens = 0
        self._touch(slot)

    def _record(self, sequence: Sequence, start: int, count: int) -> None:
        slot, end = self._slot_of(sequence), start + count
        self._token_ids[slot, start:end] = sequence.token_ids[start:end]
        self._lengths[slot] = sequence.num_computed_tokens = end

    def _touch(self, slot: int) -> None:
        self._clock += 1
        self._last_used[slot] = self._clock if self._lengths[slot] or self._owners[slot] else 0

    def _empty(self, slot: int) -> None:
        self._lengths[slot] = self._last_used[slot] = 0

    def _vacate(self, slot: int, reserved: Collection[int]) -> None:
        """Empty a slot without owner, and keep what is in it elsewhere if that is possible."""
        self._save(slot, reserved)
        self._empty(slot)

    def _save(self, slot: int, reserved: Collection[int]) -> None:
        """Copy what a slot without owner keeps to the slot worth least, if it is worth more.

        What has no slot left, of the two, goes into the store.
        """
        assert self._owners[slot] is None, "an owned slot is not to be had"
        if not self._can_save or self._lengths[slot] < MIN_KEPT_TOKENS:
            return
        others = [
            other
            for other in range(self.num_decoding, self._reach)
            if self._owners[other] is None and other not in reserved
        ]
        least = min(others, key=lambda other: int(self._last_used[other]), default=slot)
        if self._last_used[least] >= self._last_used[slot]:
            self._store_row(slot)
        else:
            self._store_row(least)
            self._copy_row(slot, least, int(self._lengths[slot]))
            self._last_used[least] = self._last_used[slot]

    def _store_row(self, slot: int) -> None:
        if self._store is not None:
            token_ids = self._token_ids[slot, : self._lengths[slot]]
            self._store.keep(self._namespaces[slot], token_ids, slot)

    def _make_way(self) -> None:
        """Whoever is in prefill in the slot next to those that decode takes another."""
        slot = self.num_decoding
        if self._owners[slot] is not None:
            free = self._owners.index(None, slot)
            self._vacate(free, reserved=(free,))
            self._move(slot, free)

    def _move(self, source: int, target: int) -> None:
        """A sequence takes all it has to another slot, and leaves an empty one."""
        self._copy_row(source, target, int(self._lengths[source]))
        owner = self._owners[source]
        assert owner is not None, "a slot without an owner is saved, not moved"
        self._owners[target], self._owners[source], owner.slot = owner, None, target
        self._last_used[target] = self._last_used[source]
        self._empty(source)

    def _copy_row(self, source: int, target: int, num_tokens: int, start: int = 0) -> None:
        self._copy(source, target, num_tokens, start)
        self._token_ids[target, :num_tokens] = self._token_ids[source, :num_tokens]
        self._namespaces[target] = self._namespaces[source]
        self._lengths[target] = num_tokens
        self.num_moved_rows += 1
