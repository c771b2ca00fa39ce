"""Token ids in, text out: as early as it is certain, and never what a stop string cuts off.

Knows the bytes of tokens and nothing of tokenizers. A token may hold a part of a
character, so bytes are decoded incrementally; a text may be on its way to a stop string,
so the longest end of it that begins one is held back, and no more. Every character is
looked at once per stop string (Knuth, Morris and Pratt's automaton), however long the text.

Of several stop strings the one that is complete first wins, at a tie the first listed:
waiting for a longer one that began earlier would mean to generate on after a match.
"""

import codecs
from collections.abc import Mapping, Sequence


class TextStream:
    """The text of one sequence while it grows: all `push` and `finish` give, joined."""

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        stop: tuple[str, ...] = (),
        *,
        strips_space: bool = False,
        special_bytes: Mapping[int, bytes] = {},
        includes_stop: bool = False,
    ) -> None:
        """A text that `strips_space` begins behind its first character where that is a space.

        `special_bytes`, by id, are those of special tokens where the text has them; one that
        `includes_stop` ends with the stop string that was found.
        """
        self.matched_stop: str | None = None
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._searches = [_Search(pattern) for pattern in stop]
        self._held = ""
        self._strips_space = strips_space
        self._special_bytes, self._includes_stop = special_bytes, includes_stop

    def push(self, token_id: int, may_stop: bool = True) -> str:
        """Text that may be sent now, often none, and none any more after a match.

        Where it may not stop, a stop string that this token completes is text like other.
        Ids beyond the tokenizer's, which a padded vocabulary has, are of no text.
        """
        if self.matched_stop is not None or token_id >= len(self._token_bytes):
            return ""
        token = self._special_bytes.get(token_id) or self._token_bytes[token_id]
        return self._advance(self._decoder.decode(token), may_stop)

    def finish(self) -> str:
        """The text held back, unless a stop string was found; a cut character as U+FFFD."""
        if self.matched_stop is not None:
            return ""
        text = self._advance(self._decoder.decode(b"", final=True), may_stop=True) + self._held
        self._held = ""
        return text

    def _advance(self, new: str, may_stop: bool) -> str:
        if self._strips_space and new:
            self._strips_space, new = False, new.removeprefix(" ")
        if not self._searches:
            return new
        text = self._held + new
        end = len(self._held)
        for character in new:
            end += 1
            matches = [search for search in self._searches if search.push(character)]
            if matches and may_stop:
                self.matched_stop, self._held = matches[0].pattern, ""
                return text[: end if self._includes_stop else end - len(matches[0].pattern)]
        num_sure = len(text) - max(search.num_matched for search in self._searches)
        self._held = text[num_sure:]
        return text[:num_sure]


class _Search:
    """The match of the text's end with one pattern: `num_matched` characters, never all of them."""

    def __init__(self, pattern: str) -> None:
        assert pattern, "nothing to look for"
        self.pattern = pattern
        self.num_matched = 0
        # By number of characters: how many of them at their end begin the pattern again.
        self._shorter = [0, 0]
        for character in pattern[1:]:
            num = self._next(self._shorter[-1], character)
            self._shorter.append(num)

    def push(self, character: str) -> bool:
        """Whether this character completes the pattern."""
        self.num_matched = self._next(self.num_matched, character)
        is_complete = self.num_matched == len(self.pattern)
        if is_complete:
            self.num_matched = self._shorter[-1]
        return is_complete

    def _next(self, num: int, character: str) -> int:
        while num and self.pattern[num] != character:
            num = self._shorter[num]
        return num + 1 if self.pattern[num] == character else 0
