"""Which blocks of a paged key/value cache belong to which sequence, and what they hold.

Pure accounting, like `kv_cache.py`, for attention that takes a table of blocks (ONNX Runtime's
`PagedAttention`): a block is `block_size` neighbouring tokens of one sequence in every layer, and a
sequence has as many as its tokens need, anywhere in the cache. `copy` is how the session copies a
block. Everything here is the engine thread's own.

A full block never changes. It is known by a hash of its tokens and all tokens before it, so that
sequences which begin alike share it, while they run and afterwards: a block without users keeps its
tokens until the space is needed, the least recently used first. A block that is not full has one
user.

A sequence is admitted when the blocks of its longest output are there. They are promised to it then
and taken as it grows, so a sequence that runs always goes on. A beam search is promised the blocks
of all its beams.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from hashlib import blake2b

from service.generation.sequence import GenerationRequest, Sequence

CopyBlock = Callable[[int, int, int], None]  # source block, target block, number of tokens
KEY_BYTES = 16
Owner = Sequence | GenerationRequest  # a promise is to a sequence, or to all beams of a search


@dataclass(slots=True)
class _Row:
    """The blocks of one sequence."""

    blocks: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)  # of the full blocks, in order


class PagedCache:
    """Blocks, their tokens' keys and their users."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        max_tokens: int,
        max_rows: int,
        copy: CopyBlock,
        *,
        can_reuse: bool = True,
    ) -> None:
        """At most `max_rows` sequences of at most `max_tokens` tokens each.

        `can_reuse`: blocks are found by prompts that begin alike. Samples of one prompt share it
        in any case.
        """
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.max_tokens = max_tokens
        self.num_slots = max_rows
        self.num_moved_rows = 0
        self.num_stored_bytes = 0  # blocks that are kept are of the cache itself
        self.num_evictions = 0  # of a store, which there is none of
        self.can_reuse = can_reuse
        self._copy = copy
        self._rows: dict[Sequence, _Row] = {}
        self._slots: list[Sequence | None] = [None] * max_rows
        self._num_users = [0] * num_blocks
        self._keys: list[bytes | None] = [None] * num_blocks  # of full blocks that are to be found
        self._found: dict[bytes, int] = {}  # the block of a key
        self._empty = list(reversed(range(num_blocks)))  # taken from the lowest
        self._idle: OrderedDict[int, None] = OrderedDict()  # full, without users; oldest first
        self._promised: dict[Owner, int] = {}  # blocks that may still be taken

    def __repr__(self) -> str:
        return (
            f"<PagedCache {self.num_blocks} blocks of {self.block_size}: {self.num_used_blocks} "
            f"used, {len(self._idle)} idle, {sum(self._promised.values())} promised>"
        )

    @property
    def num_used(self) -> int:
        """Sequences that have a place."""
        return len(self._rows)

    @property
    def num_places(self) -> int:
        """The blocks that there are."""
        return self.num_blocks

    @property
    def num_taken_places(self) -> int:
        """Blocks that belong to sequences, or are promised to them."""
        return self.num_used_blocks + sum([*self._promised.values()])  # read by other threads

    @property
    def num_tokens(self) -> int:
        """Tokens whose keys and values belong to a sequence; shared ones count for each."""
        return sum(sequence.num_computed_tokens for sequence in [*self._rows])

    @property
    def num_idle_tokens(self) -> int:
        """Tokens kept for prompts to come."""
        return len(self._idle) * self.block_size

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - len(self._empty) - len(self._idle)

    def running(self) -> list[Sequence]:
        """The sequences that have a place, in the order in which they took it."""
        return list(self._rows)

    def blocks(self, sequence: Sequence) -> list[int]:
        """The sequence's row of the block table."""
        return self._rows[sequence].blocks

    def num_blocks_of(self, sequence: Sequence) -> int:
        """The most blocks that the sequence, or its search, may come to use."""
        num_tokens = sequence.num_prompt_tokens + sequence.request.max_tokens
        num_all = -(-num_tokens // self.block_size)
        num_shared = (sequence.num_prompt_tokens - 1) // self.block_size
        return num_shared + sequence.num_slots * (num_all - num_shared)

    def num_known_tokens(self, sequence: Sequence) -> int:
        """The tokens of a waiting sequence's beginning that the cache has."""
        return len(self._hits(sequence)) * self.block_size

    def fits(self, sequence: Sequence) -> bool:
        """Whether there is a place for a sequence that waits, and blocks for its whole output."""
        if self.num_used + sequence.num_slots > self.num_slots:
            return False
        hits = self._hits(sequence)
        num_in_use = sum(self._num_users[block] > 0 for block in hits)
        num_left = len(self._empty) + len(self._idle) - sum(self._promised.values())
        return self.num_blocks_of(sequence) - num_in_use <= num_left

    def claim(self, sequence: Sequence) -> None:
        """Give a place to a sequence that fits, with the blocks that hold its beginning already."""
        self._enter_with(sequence, self._hits(sequence))

    def claim_beside(self, sequence: Sequence, source: Sequence) -> None:
        """Give a place to a further sample of a prompt that `source` has computed.

        The last token of the prompt is left, for its logits.
        """
        num_tokens = sequence.num_tokens - 1
        num_full = num_tokens // self.block_size
        self._enter_with(sequence, self._rows[source].blocks[:num_full])
        if num_tokens > sequence.num_computed_tokens:
            self._copy_rest(source, sequence, num_tokens)
        sequence.num_computed_tokens = sequence.num_reused_tokens = num_tokens

    def reserve(self, sequence: Sequence, num_tokens: int) -> None:
        """Give the sequence blocks for its next tokens, which the next run computes."""
        row, end = self._rows[sequence], sequence.num_computed_tokens + num_tokens
        assert end <= self.max_tokens, "beyond the longest sequence"
        while len(row.blocks) * self.block_size < end:
            row.blocks.append(self._take(_owner(sequence)))

    def advance(self, sequence: Sequence, num_tokens: int) -> None:
        """A run has computed the sequence's next tokens."""
        row = self._rows[sequence]
        sequence.num_computed_tokens += num_tokens
        for place in range(len(row.keys), sequence.num_computed_tokens // self.block_size):
            row.keys.append(self._key_of(sequence, place, row.keys))
            self._publish(row.keys[place], row.blocks[place])

    def fork(self, source: Sequence, target: Sequence) -> None:
        """Give another beam of one search the source's tokens: full blocks shared, the rest copied.

        A target that has a place gives up its own blocks.
        """
        if target in self._rows:
            self._drop_blocks(target)
        else:
            self._enter(target)
        row, own = self._rows[source], self._rows[target]
        num_full = source.num_computed_tokens // self.block_size
        own.keys = row.keys[:num_full]
        own.blocks = row.blocks[:num_full]
        for block in own.blocks:
            self._share(block)
        target.num_computed_tokens = num_full * self.block_size
        if source.num_computed_tokens > target.num_computed_tokens:
            self._copy_rest(source, target, source.num_computed_tokens)
        target.num_computed_tokens = source.num_computed_tokens

    def release(self, sequence: Sequence, *, is_sound: bool = True) -> None:
        """The sequence ended. Its full blocks stay for others.

        A failed run has written to no full block: they are sound where `is_sound` says no, too.
        """
        del is_sound
        self._drop_blocks(sequence)
        assert sequence.slot is not None, "it had a place"
        self._slots[sequence.slot], sequence.slot = None, None
        del self._rows[sequence]
        owner = _owner(sequence)
        if not any(_owner(other) is owner for other in self._rows):
            del self._promised[owner]

    def check_integrity(self, sequences: Collection[Sequence]) -> None:
        """Recount everything; `sequences` are all that should have a place.

        Raises `AssertionError` saying what does not add up.
        """
        assert self._rows.keys() == set(sequences), "a place is leaked, or a sequence lost its own"
        places = {slot: owner for slot, owner in enumerate(self._slots) if owner is not None}
        assert {s: s.slot for s in self._rows} == {s: slot for slot, s in places.items()}
        num_users = [0] * self.num_blocks
        for sequence, row in self._rows.items():
            self._check_row(sequence, row)
            for place, block in enumerate(row.blocks):
                num_users[block] += 1
                is_full = (place + 1) * self.block_size <= sequence.num_computed_tokens
                assert is_full or self._num_users[block] == 1, "a block in the making is shared"
        assert num_users == self._num_users, "users are miscounted"
        unused = {block for block, count in enumerate(num_users) if not count}
        assert unused == {*self._empty, *self._idle}, "a block is lost, or free and in use"
        assert len(unused) == len(self._empty) + len(self._idle), "a block is free twice"
        keyed = {block: key for block, key in enumerate(self._keys) if key is not None}
        assert keyed == {block: key for key, block in self._found.items()}, "a block is misnamed"
        assert set(self._idle) <= keyed.keys(), "a block is kept that cannot be found"
        assert not keyed.keys() & set(self._empty), "an empty block can be found"
        assert set(self._promised) == {_owner(s) for s in self._rows}, "a promise to no one"
        assert all(count >= 0 for count in self._promised.values()), "more taken than promised"
        assert sum(self._promised.values()) <= len(unused), "a promise that cannot be kept"

    def _check_row(self, sequence: Sequence, row: _Row) -> None:
        num_full = sequence.num_computed_tokens // self.block_size
        assert not sequence.is_finished, f"{sequence} has ended and keeps its blocks"
        assert len(set(row.blocks)) == len(row.blocks), f"{sequence} has a block twice"
        assert len(row.keys) == num_full, f"{sequence} has {len(row.keys)} keys"
        assert len(row.blocks) * self.block_size >= sequence.num_computed_tokens, "tokens nowhere"
        for place, block in enumerate(row.blocks[:num_full]):
            key = self._key_of(sequence, place, row.keys[:place])
            assert row.keys[place] == key, f"others' tokens in {sequence}"
            assert self._keys[block] in (None, key), f"block {block} is found by another key"

    def _hits(self, sequence: Sequence) -> list[int]:
        """The blocks that hold the sequence's beginning, all but its last token.

        None where the prompt is scored: cached tokens have no logits.
        """
        if sequence.scores_prompt:
            return []
        keys: list[bytes] = []
        blocks: list[int] = []
        for place in range((sequence.num_tokens - 1) // self.block_size):
            keys.append(self._key_of(sequence, place, keys))
            block = self._found.get(keys[-1])
            if block is None:
                break
            blocks.append(block)
        return blocks

    def _enter_with(self, sequence: Sequence, blocks: list[int]) -> None:
        """Give a place, the full blocks of the beginning, and the promise of the others."""
        row = self._enter(sequence)
        for place, block in enumerate(blocks):
            self._share(block)
            row.keys.append(self._key_of(sequence, place, row.keys))
        row.blocks = blocks
        self._promised[_owner(sequence)] = self.num_blocks_of(sequence) - len(blocks)
        num_tokens = len(blocks) * self.block_size
        sequence.num_computed_tokens = sequence.num_reused_tokens = num_tokens

    def _enter(self, sequence: Sequence) -> _Row:
        slot = self._slots.index(None)
        self._slots[slot], sequence.slot = sequence, slot
        row = self._rows[sequence] = _Row()
        return row

    def _key_of(self, sequence: Sequence, place: int, before: list[bytes]) -> bytes:
        """Key of the sequence's full block at a place; `before` are those before it."""
        tokens = sequence.token_ids[place * self.block_size : (place + 1) * self.block_size]
        key = before[-1] if before else _root_of(sequence.request.namespace)
        return blake2b(tokens.tobytes(), digest_size=KEY_BYTES, key=key).digest()

    def _take(self, owner: Owner) -> int:
        """An empty block, or the one that was idle longest, out of what was promised."""
        assert self._promised[owner] > 0, "more blocks than were promised"
        self._promised[owner] -= 1
        if self._empty:
            block = self._empty.pop()
        else:
            block, _ = self._idle.popitem(last=False)
            key = self._keys[block]
            assert key is not None, "an idle block can be found"
            del self._found[key]
            self._keys[block] = None
        self._num_users[block] = 1
        return block

    def _share(self, block: int) -> None:
        self._idle.pop(block, None)
        self._num_users[block] += 1

    def _publish(self, key: bytes, block: int) -> None:
        """Let a full block be found, where no other holds the same."""
        if self.can_reuse and self._keys[block] is None and key not in self._found:
            self._found[key], self._keys[block] = block, key

    def _drop_blocks(self, sequence: Sequence) -> None:
        """The last blocks are forgotten first: what comes before them is of use without them."""
        row, owner = self._rows[sequence], _owner(sequence)
        for place in reversed(range(len(row.blocks))):
            block = row.blocks[place]
            self._num_users[block] -= 1
            if self._num_users[block]:
                continue
            self._promised[owner] += 1
            if place < len(row.keys):
                self._publish(row.keys[place], block)
            if self._keys[block] is None:
                self._empty.append(block)
            else:
                self._idle[block] = None
        self._rows[sequence] = _Row()

    def _copy_rest(self, source: Sequence, target: Sequence, num_tokens: int) -> None:
        """Copy the tokens behind the target's full blocks; they are in one block."""
        place, num_rest = divmod(num_tokens, self.block_size)
        row = self._rows[target]
        assert len(row.blocks) == place, "the rest lies in the block after those it shares"
        row.blocks.append(self._take(_owner(target)))
        self._copy(self._rows[source].blocks[place], row.blocks[place], num_rest)
        self.num_moved_rows += 1


def _root_of(namespace: str) -> bytes:
    """Key before the first block: prompts of different namespaces share none."""
    return blake2b(namespace.encode(errors="surrogatepass"), digest_size=KEY_BYTES).digest()


def _owner(sequence: Sequence) -> Owner:
    return sequence.request if sequence.request.params.has_beams else sequence
