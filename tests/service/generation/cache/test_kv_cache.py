"""Who has which slot, what moves, what is kept and what is given up: the cache alone.

A prompt of one repeated letter is told from every other by its first token.
"""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

from service.generation.cache.kv_cache import MIN_KEPT_TOKENS, KVCache
from service.generation.sequence import Sequence
from service.records import FinishReason
from tests.fakes.generation import sequence_of
from tests.fakes.sessions import FakeDecoder

LONG = 20  # tokens, worth keeping


class Rig:
    """A cache over a fake decoder's slots; `live` are the sequences that should have one."""

    def __init__(self, num_slots: int, max_tokens: int = 64) -> None:
        self.decoder = FakeDecoder(num_slots, max_tokens)
        self.cache = KVCache(num_slots, max_tokens, self.decoder.copy)
        self.live: list[Sequence] = []

    def prefill(self, *prompts: str) -> list[Sequence]:
        """New sequences side by side, their prompts computed, not yet decoding."""
        sequences = [sequence_of(prompt) for prompt in prompts]
        self.cache.claim(sequences)
        self.live += sequences
        for sequence in sequences:
            self.compute(sequence, sequence.num_tokens)
        return sequences

    def start(self, *prompts: str) -> list[Sequence]:
        """New sequences that decode: a token is sampled, the next step computes it."""
        sequences = self.prefill(*prompts)
        for sequence in sequences:
            self.promote(sequence)
        self.check()
        return sequences

    def promote(self, sequence: Sequence) -> None:
        sequence.append(ord("."))
        self.cache.promote(sequence)

    def continue_from(self, prompt: str, source: int, num_tokens: int) -> Sequence:
        """A new sequence in prefill whose beginning is copied."""
        sequence = sequence_of(prompt)
        self.cache.claim_with_prefix(sequence, source, num_tokens)
        self.live.append(sequence)
        return sequence

    def compute(self, sequence: Sequence, num_tokens: int) -> None:
        first = sequence.num_computed_tokens
        assert sequence.slot is not None
        ids = sequence.token_ids[first : first + num_tokens]
        self.decoder.run(sequence.slot, [ids], [first])
        self.cache.advance(sequence, num_tokens)

    def end(self, *sequences: Sequence, is_sound: bool = True) -> None:
        for sequence in sequences:
            self.live.remove(sequence)
            self.cache.release(sequence, is_sound=is_sound)
            sequence.finish_reason = FinishReason.STOP
        self.check()

    def find(self, prompt: str) -> tuple[int, int]:
        return self.cache.find_prefix(np.array(list(prompt.encode()), np.int32))

    def num_kept(self, prompt: str) -> int:
        """How many of a prompt's tokens are found anywhere."""
        return self.find(prompt)[1]

    def check(self) -> None:
        self.cache.check_integrity(self.live)
        self.check_contents()

    def check_contents(self) -> None:
        """The decoder's slots hold what the accounting says."""
        for slot, ids in enumerate(self.decoder.slots):
            length = self.cache._lengths[slot]
            assert ids[:length] == self.cache._token_ids[slot, :length].tolist()


def slots_of(sequences: list[Sequence]) -> list[int | None]:
    return [sequence.slot for sequence in sequences]


def test_sequences_that_decode_have_the_first_slots_and_prefill_the_next_ones() -> None:
    rig = Rig(6)
    decoding = rig.start("a", "b", "c")
    more = rig.prefill("d", "e")
    assert slots_of(decoding) == [0, 1, 2]
    assert slots_of(more) == [3, 4]
    assert rig.cache.decoding() == decoding
    assert repr(rig.cache) == "<KVCache 6 slots: 3 decode, 2 in prefill, 5 tokens>"


def test_a_sequence_that_ends_at_its_first_token_leaves_no_gap() -> None:
    """Slots 0 to 2: the first ends before it decodes, the others move up, and 3 keeps its 20."""
    rig = Rig(4)
    first, second, third = rig.prefill("a" * LONG, "b", "c")
    rig.live.remove(first)
    rig.cache.release(first)
    rig.promote(second)
    rig.promote(third)
    rig.check()
    assert slots_of([second, third]) == [0, 1]
    assert rig.find("a" * LONG) == (3, LONG)


def test_the_last_takes_the_place_of_the_one_that_ended() -> None:
    """Five slots, all decoding: the second ends, and one row of 3 tokens moves from 4 to 1."""
    rig = Rig(5)
    sequences = rig.start("aa", "bb", "cc", "dd", "eee")
    rig.end(sequences[1])
    assert rig.decoder.copies == [(4, 1, 3)]
    assert slots_of(sequences) == [0, None, 2, 3, 1]
    assert rig.cache.num_decoding == 4


def test_nothing_moves_where_the_last_one_ends() -> None:
    rig = Rig(5)
    sequences = rig.start("a" * LONG, "b" * LONG, "c" * LONG)
    rig.end(sequences[2])
    assert rig.decoder.copies == []
    assert rig.find("c" * LONG) == (2, LONG)


def test_at_most_one_running_row_moves_when_a_sequence_ends() -> None:
    """Eight slots over 500 random starts and ends; what decodes keeps its slot but for one."""
    random = np.random.default_rng(0)
    rig = Rig(8)
    for number in range(500):
        if rig.live and random.random() < 0.5:
            before = dict(zip(rig.live, slots_of(rig.live), strict=True))
            rig.end(rig.live[random.integers(len(rig.live))])
            assert sum(before[sequence] != sequence.slot for sequence in rig.live) <= 1
        elif len(rig.live) < 8:
            rig.start(chr(number + 200) * 12)
    assert rig.cache.num_moved_rows == len(rig.decoder.copies) > 50


def test_what_an_ended_sequence_leaves_moves_to_a_slot_worth_less() -> None:
    """The first of two ends: its 20 tokens go to the empty third slot, the other's to the first."""
    rig = Rig(3)
    first, second = rig.start("a" * LONG, "b" * LONG)
    rig.end(first)
    assert rig.find("a" * LONG) == (2, LONG)
    assert second.slot == 0
    assert rig.cache.num_idle_tokens == LONG


def test_what_an_ended_sequence_leaves_is_lost_where_every_slot_is_in_use() -> None:
    rig = Rig(2)
    first, _ = rig.start("a" * LONG, "b" * LONG)
    rig.end(first)
    assert rig.num_kept("a" * LONG) == 0
    assert rig.cache.num_idle_tokens == 0


def test_a_prompt_takes_an_empty_slot_before_it_takes_a_kept_one() -> None:
    """Four slots, one kept: three sequences start, and it is still there."""
    rig = Rig(4)
    rig.end(*rig.start("a" * LONG))
    rig.start("b" * LONG)
    rig.start("c" * LONG, "d" * LONG)
    assert rig.num_kept("a" * LONG) == LONG


@pytest.mark.parametrize("order", list(permutations("abc")), ids="".join)
def test_the_least_recently_used_is_given_up_first(order: tuple[str, ...]) -> None:
    """Three slots are kept; each new sequence costs the one that ended longest ago."""
    rig = Rig(3)
    by_letter = dict(zip("abc", rig.prefill(*(letter * LONG for letter in "abc")), strict=True))
    rig.end(*(by_letter[letter] for letter in order))
    for number in range(3):
        rig.start(str(number) * LONG)
        kept = [letter for letter in order if rig.num_kept(letter * LONG)]
        assert kept == list(order[number + 1 :])


def test_what_is_copied_from_counts_as_used() -> None:
    """A ended before B; a prompt that begins like A makes B the one to give up."""
    rig = Rig(3)
    rig.end(*rig.prefill("a" * LONG))
    rig.end(*rig.prefill("b" * LONG))
    source, _ = rig.find("a" * LONG)
    rig.compute(rig.continue_from("a" * LONG + "!", source, LONG), 1)
    rig.promote(rig.live[0])
    rig.start("c" * LONG)
    assert rig.num_kept("a" * LONG) == LONG
    assert rig.num_kept("b" * LONG) == 0


def test_the_longest_common_beginning_is_found() -> None:
    """Against a comparison token by token, over 300 random prompts of two letters in 6 slots."""
    random = np.random.default_rng(1)
    rig = Rig(6)

    def prompt() -> str:
        return "".join(random.choice(["a", "b"], size=random.integers(1, 40)))

    for _ in range(300):
        if len(rig.live) == 6 or (rig.live and random.random() < 0.4):
            rig.end(rig.live[random.integers(len(rig.live))])
        else:
            rig.start(prompt())
        asked = list(prompt().encode())
        lengths = [
            num_same(asked, ids[: rig.cache._lengths[slot]])
            for slot, ids in enumerate(rig.decoder.slots)
        ]
        slot, length = rig.cache.find_prefix(np.array(asked, np.int32))
        assert length == max(lengths) == lengths[slot]


def num_same(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def test_nothing_is_found_beyond_what_was_computed() -> None:
    """A slot's 20 tokens are followed by a prompt of 4: of the 16 after it, none counts."""
    rig = Rig(1)
    rig.end(*rig.start("a" * LONG))
    rig.start("a" * 4)
    assert rig.find("a" * LONG) == (0, 4)
    assert rig.find("") == (0, 0)


def test_copying_a_prefix_keeps_a_running_source() -> None:
    rig = Rig(3)
    (running,) = rig.start("a" * LONG)
    copied = rig.continue_from("a" * LONG + "b", source=0, num_tokens=LONG)
    assert (running.slot, copied.slot) == (0, 1)
    assert copied.num_computed_tokens == copied.num_reused_tokens == LONG
    rig.compute(copied, 1)
    rig.promote(copied)
    rig.check()


@pytest.mark.parametrize("num_before", [0, 1])
def test_copying_a_prefix_keeps_an_idle_source_whole(num_before: int) -> None:
    """Of 40 kept tokens 20 are copied: the other 20 stay, also where the slot itself is taken."""
    rig = Rig(3)
    rig.end(*rig.start("a" * LONG + "b" * LONG))
    rig.start(*["c" * LONG] * num_before)
    source, length = rig.find("a" * LONG + "d")
    copied = rig.continue_from("a" * LONG + "d" * LONG, source, length)
    assert rig.num_kept("a" * LONG + "b" * LONG) == 2 * LONG
    rig.compute(copied, LONG)
    rig.promote(copied)
    rig.check()
    assert rig.num_kept("a" * LONG + "b" * LONG) == 2 * LONG


def test_a_source_that_is_continued_is_continued_in_place() -> None:
    """40 kept tokens and 4 more: nothing is copied, and no slot beside it is spent."""
    rig = Rig(3)
    rig.end(*rig.start("a" * LONG * 2))
    copied = rig.continue_from("a" * LONG * 2 + "bbbb", source=0, num_tokens=2 * LONG)
    assert copied.slot == 0
    assert rig.decoder.copies == []
    assert rig.cache.num_idle_tokens == 0


def test_the_only_slot_is_taken_with_what_can_be_used_of_it() -> None:
    """There is nowhere else for the other 20 tokens."""
    rig = Rig(1)
    rig.end(*rig.start("a" * LONG + "b" * LONG))
    copied = rig.continue_from("a" * LONG + "d" * LONG, source=0, num_tokens=LONG)
    rig.compute(copied, LONG)
    rig.promote(copied)
    rig.check()
    assert rig.cache.num_idle_tokens == 0


def test_the_source_is_not_given_up_for_what_is_in_the_way() -> None:
    """Two slots are kept, A older than B; B's is needed, and A is what is copied."""
    rig = Rig(2)
    first, second = rig.prefill("b" * LONG, "a" * LONG)
    rig.end(second, first)
    copied = rig.continue_from("a" * LONG + "c", source=1, num_tokens=LONG)
    assert copied.slot == 0
    assert rig.num_kept("a" * LONG) == LONG
    assert rig.decoder.slots[0] == list(b"a" * LONG)


def test_the_last_token_of_a_prompt_is_never_copied() -> None:
    """Its logits are wanted: of 20 tokens at most 19 may be copied."""
    rig = Rig(2)
    rig.end(*rig.start("a" * LONG))
    with pytest.raises(AssertionError, match="the last token is always computed"):
        rig.continue_from("a" * LONG, source=0, num_tokens=LONG)
    rig.continue_from("a" * LONG, source=0, num_tokens=LONG - 1)


@pytest.mark.parametrize("num_tokens", [MIN_KEPT_TOKENS - 1, MIN_KEPT_TOKENS])
def test_few_tokens_are_not_worth_a_copy(num_tokens: int) -> None:
    """15 tokens in the way are given up, 16 move on to an empty slot."""
    rig = Rig(3)
    rig.end(*rig.start("a" * num_tokens))
    assert rig.num_kept("a" * num_tokens) == num_tokens
    rig.start("b")
    is_kept = num_tokens == MIN_KEPT_TOKENS
    assert rig.num_kept("a" * num_tokens) == (num_tokens if is_kept else 0)
    assert len(rig.decoder.copies) == is_kept


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_unsound_end_leaves_nothing_to_copy(place: int) -> None:
    """A failed run may have written anything: first, middle or last of three."""
    rig = Rig(5)
    letters = "abc"
    sequences = rig.start(*(letter * LONG for letter in letters))
    rig.end(sequences[place], is_sound=False)
    assert rig.num_kept(letters[place] * LONG) == 0
    assert all(rig.num_kept(letter * LONG) for letter in letters.replace(letters[place], ""))


def test_an_unsound_end_in_prefill_leaves_nothing_to_copy() -> None:
    rig = Rig(3)
    (sequence,) = rig.prefill("a" * LONG)
    rig.end(sequence, is_sound=False)
    assert rig.num_kept("a" * LONG) == 0
    assert rig.cache.num_used == rig.cache.num_idle_tokens == 0


def test_a_sequence_that_ends_before_its_first_run_leaves_an_empty_slot() -> None:
    rig = Rig(1)
    sequence = sequence_of("a" * LONG)
    rig.cache.claim([sequence])
    rig.live.append(sequence)
    rig.check()
    rig.end(sequence)
    assert rig.cache.num_idle_tokens == 0


def test_tokens_are_counted_by_whom_they_are_for() -> None:
    """20 belong to a sequence, 30 are kept."""
    rig = Rig(3)
    _, ended = rig.start("a" * 20, "b" * 30)
    rig.end(ended)
    assert (rig.cache.num_used, rig.cache.num_tokens, rig.cache.num_idle_tokens) == (1, 20, 30)


def a_leaked_slot(rig: Rig) -> None:
    rig.live.pop()


def a_sequence_without_its_slot(rig: Rig) -> None:
    rig.live.append(sequence_of("lost"))


def a_second_slot(rig: Rig) -> None:
    rig.cache._owners[3] = rig.live[2]


def a_gap(rig: Rig) -> None:
    rig.live.remove(rig.cache.decoding()[0])
    rig.cache._owners[0] = None


def two_exchanged_slots(rig: Rig) -> None:
    owners = rig.cache._owners
    owners[0], owners[1] = owners[1], owners[0]


def an_ended_owner(rig: Rig) -> None:
    rig.live[0].finish_reason = FinishReason.STOP


def a_length_that_is_not_the_sequence_s(rig: Rig) -> None:
    rig.cache._lengths[0] -= 1


def another_s_token(rig: Rig) -> None:
    rig.cache._token_ids[0, 5] += 1


def a_prefill_among_those_that_decode(rig: Rig) -> None:
    rig.cache.num_decoding = 3


def a_decoding_one_behind_them(rig: Rig) -> None:
    rig.cache.num_decoding = 1


def an_empty_slot_that_counts_as_used(rig: Rig) -> None:
    rig.cache._last_used[3] = 1


def a_kept_slot_that_counts_as_empty(rig: Rig) -> None:
    rig.cache._last_used[4] = 0


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (a_leaked_slot, "a slot is leaked"),
        (a_sequence_without_its_slot, "a sequence lost its own"),
        (a_second_slot, "two slots"),
        (a_gap, "a gap among those decoding"),
        (two_exchanged_slots, "is in slot"),
        (an_ended_owner, "has ended and keeps slot 0"),
        (a_length_that_is_not_the_sequence_s, "has 19 in its slot"),
        (another_s_token, "others' tokens"),
        (a_prefill_among_those_that_decode, "is out of place"),
        (a_decoding_one_behind_them, "is out of place"),
        (an_empty_slot_that_counts_as_used, "idle slot 3 is half empty"),
        (a_kept_slot_that_counts_as_empty, "idle slot 4 is half empty"),
    ],
)
def test_the_check_of_integrity_notices(damage: Callable[[Rig], None], found: str) -> None:
    """Two decode, one is in its prompt, slot 3 is empty and slot 4 keeps 20 tokens."""
    rig = Rig(5)
    rig.start("a" * LONG, "b" * LONG)
    in_chunks, unsound, kept = rig.prefill("c" * LONG, "x", "d" * LONG)
    rig.end(unsound, is_sound=False)
    rig.end(kept)
    assert in_chunks.slot == 2
    damage(rig)
    with pytest.raises(AssertionError, match=found):
        rig.cache.check_integrity(rig.live)


def test_a_cache_uses_as_many_slots_as_its_load_needs() -> None:
    """Of 64 slots: 16 for eight sequences at once, whatever prompts have come and gone."""
    rig = Rig(64, max_tokens=64)
    for number in range(40):
        prompts = [f"prompt {number:02} of client {client}, and so on" for client in range(8)]
        rig.end(*rig.start(*prompts))
        assert sum(map(rig.num_kept, prompts)) > 7 * len(prompts[0]), "the newest are kept"
    touched = {slot for slot in range(64) if rig.cache._lengths[slot]}
    assert touched <= set(range(16))
    assert rig.num_kept("prompt 38 of client 7, and so on") == len(
        "prompt 38 of client 7, and so on"
    )
