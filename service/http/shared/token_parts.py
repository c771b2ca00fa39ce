"""Which part of a text each of its tokens is, as both come.

A token may be a piece of a character, whose text is that of the token that completes it; a text may
have lost the space that its first token begins with, special tokens, or what a stop text cut off.
Tokens wait until their part of the text is certain. Pure, and the same however both are cut.
"""

import codecs
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Token = TypeVar("Token")


@dataclass(slots=True)
class Part(Generic[Token]):
    """The text of a token, and where in the whole text it begins."""

    token: Token
    text: str
    offset: int


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Token]):
    token: Token
    has_bytes: bool
    text: str  # that it completes
    is_open: bool  # its last character is not whole


class TokenParts(Generic[Token]):
    """Splits one text. What stands behind `_place` in `_text` no token has yet."""

    def __init__(self, offset: int = 0) -> None:
        """A text that begins `offset` characters behind the beginning."""
        self.offset = offset  # of the next part
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text, self._place = "", 0
        self._waiting: list[_Waiting[Token]] = []
        self._has_begun = False

    def read(
        self, tokens: Iterable[tuple[Token, bytes]], text: str, *, is_end: bool = False
    ) -> list[Part[Token]]:
        """The parts that are certain with these tokens, each with its bytes, and with this text.

        Tokens without a part of the text come with the next one that has some, or at the end: a
        piece of a character that a stop text cuts off is then cut off too. At the end the last
        token that has bytes also has what no token accounts for.
        """
        self._text, self._place = self._text[self._place :] + text, 0
        for token, spelled in tokens:
            completed = self._decoder.decode(spelled)
            is_open = bool(self._decoder.getstate()[0])
            self._waiting.append(_Waiting(token, bool(spelled), completed, is_open))
        parts: list[Part[Token]] = []
        begun = [self._has_begun]  # before each part, and behind the last
        last: Part[Token] | None = None
        num_whole = len(self._waiting)
        while not is_end and num_whole and self._waiting[num_whole - 1].is_open:
            num_whole -= 1
        for waiting in self._waiting[:num_whole]:
            taken = self._taken(waiting.text, is_end=is_end)
            if taken is None:
                break
            parts.append(Part(waiting.token, taken, self.offset))
            last = parts[-1] if waiting.has_bytes or last is None else last
            self._place += len(taken)
            self.offset += len(taken)
            begun.append(self._has_begun)
        while not is_end and parts and not parts[-1].text:
            parts.pop()
        self._has_begun = begun[len(parts)]
        del self._waiting[: len(parts)]
        if is_end and last is not None:
            last.text += self._text[self._place :]
            self.offset += len(self._text) - self._place
            self._text, self._place = "", 0
        return parts

    def _taken(self, text: str, *, is_end: bool) -> str | None:
        """Part of the rest that a token of this text has; None where that is not certain."""
        left = self._text[self._place : self._place + 2 * len(text) + 2]
        if text and not left and not is_end:
            return None
        spellings = [text] if self._has_begun else [text, text.removeprefix(" ")]
        for spelling in spellings:
            if left.startswith(spelling):
                self._has_begun = self._has_begun or bool(text)
                return spelling
        if any(spelling.startswith(left) for spelling in spellings):
            return left if is_end else None
        alike = _alike(left, text) if is_end else ""
        self._has_begun = self._has_begun or bool(alike)
        return alike  # nothing of a special token


def _alike(text: str, token: str) -> str:
    """The beginning of a text that a normalizer may have made this token of; the longest one."""
    plain = _plain(token).lstrip()
    sizes = range(len(text), 0, -1)
    alike = (size for size in sizes if _plain(text[:size]).lstrip() == plain)
    return text[: next(alike, 0)] if plain else ""


def _plain(text: str) -> str:
    """The text without case, accents and forms of characters, which normalizers may take."""
    spelled = unicodedata.normalize("NFKD", text).casefold()
    return "".join(character for character in spelled if not unicodedata.combining(character))
