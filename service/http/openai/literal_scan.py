"""The arguments of a call that are literals of a language: of Python, or of Gemma.

They are written as JSON while they are read. The reader knows at each character whether what was
read can still become such arguments. Pure, and in time linear in the text.
"""

import json
import math
import re

from service.calls.conversation import MAX_DEPTH
from service.families.call_forms import Literals

MAX_WORD_CHARACTERS = 4_300  # of a number; Python reads none that is longer
MAX_KEY_CHARACTERS = 256

_SPACES = re.compile(r"[ \t\n\r]*")
_KEY = re.compile(r"[\w.$-]*")
_WORD = re.compile(r"[-+.\w]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_OPEN_WORD = re.compile(r"[-+]?(?:[0-9.][0-9._eE+-]*)?")
_WORDS = {word: word for word in ("true", "false", "null")} | {
    "True": "true",
    "False": "false",
    "None": "null",
}
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|\n|.)")
_OPEN_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?$")
_NAMED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": ""}
_BEHIND = re.compile(r"\s*[,)\]}:]")  # what follows the quote that ends a text
_CLOSING = {"[": "]", "{": "}"}
_CHARACTERS = {quote: re.compile(rf"(?:[^{quote}\\]|\\(?:.|\n))*+") for quote in "\"'"}


class LiteralScan:
    """Arguments, from behind the bracket that opens them to the one that closes them.

    `_place` is behind the last whole part of `text`, and `_written` is that part as JSON.
    """

    def __init__(self, form: Literals) -> None:
        self._form = form
        self.text = ""
        self.can_be_call = True
        self.arguments_end: int | None = None
        self._place = 0
        self._seen = 0  # of a text that is not whole, where no end of it is
        self._open = [form.close]
        self._written: list[str] = ["{"]
        self._step = self._read_first_key

    def feed(self, text: str) -> None:
        """More of the text; what stands behind the closing bracket is not read."""
        self.text += text
        while self.can_be_call and self.arguments_end is None:
            spaces = _SPACES.match(self.text, self._place)
            self._place = spaces.end() if spaces else self._place
            if self._place == len(self.text) or not self._step():
                break

    @property
    def num_read(self) -> int:
        """The number of characters that were looked at."""
        return max(self._place, self._seen)

    @property
    def arguments(self) -> str | None:
        """The arguments as the text of a JSON object; None where they are not whole."""
        return "".join(self._written) if self.arguments_end is not None else None

    @property
    def open_arguments(self) -> str:
        """The written part of the arguments where the text ends early."""
        written = "".join(self._written)
        is_value = self._step == self._read_value and written != "{"
        if not is_value or (quote := self._quote_here()) in (None, ""):
            return "" if written == "{" else written
        rest = self.text[self._place + len(quote) :]
        if self._form.quote:
            lengths = range(min(len(rest), len(quote) - 1), 0, -1)
            num_open = next((each for each in lengths if quote.startswith(rest[-each:])), 0)
            value = rest[: len(rest) - num_open]
        else:
            value = _unescaped(_OPEN_ESCAPE.sub("", re.sub(rf"(?<!\\){quote}\s*$", "", rest)))
        return written + _json(value)[:-1]

    def _fail(self) -> bool:
        self.can_be_call = False
        return False

    def _read_first_key(self) -> bool:
        return self._close() if self._at(self._open[-1]) else self._read_key()

    def _read_key(self) -> bool:
        if self._at(self._open[-1]):  # behind a last comma
            self._written.pop()
            return self._close()
        quote = self._quote_here()
        if quote is None:
            return False
        if quote:
            if self._is_outer and not self._form.quote:
                return self._fail()
            key = self._string(quote)
        else:
            key = self._bare_key()
        if key is None:
            return False
        self._written.append(f"{_json(key)}: ")
        self._step = self._read_equals
        return True

    def _bare_key(self) -> str | None:
        """A key without marks; None where it is not whole or is none."""
        found = _KEY.match(self.text, self._place)
        key = found[0] if found else ""
        end = self._place + len(key)
        self.can_be_call = len(key) <= MAX_KEY_CHARACTERS and (key != "" or end == len(self.text))
        if not self.can_be_call or end == len(self.text):
            return None
        self._place = end
        return key

    def _read_equals(self) -> bool:
        if not self._at(self._form.equals if self._is_outer else ":"):
            return self._fail()
        self._place += 1
        self._step = self._read_value
        return True

    def _read_first_value(self) -> bool:
        return self._close() if self._at("]") else self._read_value()

    def _read_value(self) -> bool:
        first = self.text[self._place]
        if first in _CLOSING:
            if len(self._open) == MAX_DEPTH:
                return self._fail()
            self._open.append(_CLOSING[first])
            self._written.append(first)
            self._place += 1
            self._step = self._read_first_key if first == "{" else self._read_first_value
            return True
        if first == "]" and self._open[-1] == "]" and self._written[-1] == ", ":
            self._written.pop()  # behind a last comma
            return self._close()
        quote = self._quote_here()
        if quote is None:
            return False
        value = self._string(quote) if quote else self._word()
        if value is None:
            return False
        self._written.append(_json(value) if quote else value)
        self._step = self._read_more
        return True

    def _read_more(self) -> bool:
        if self._at(self._open[-1]):
            return self._close()
        if not self._at(","):
            return self._fail()
        self._place += 1
        self._written.append(", ")
        self._step = self._read_value if self._open[-1] == "]" else self._read_key
        return True

    def _close(self) -> bool:
        closing = self._open.pop()
        self._place += 1
        self._written.append("]" if closing == "]" else "}")
        if not self._open:
            self.arguments_end = self._place
            return False
        self._step = self._read_more
        return True

    @property
    def _is_outer(self) -> bool:
        return len(self._open) == 1

    def _at(self, mark: str) -> bool:
        return self.text.startswith(mark, self._place)

    def _quote_here(self) -> str | None:
        """The mark of a text that begins here; None where more is needed to know it."""
        if not self._form.quote:
            first = self.text[self._place : self._place + 1]
            return first if first in _CHARACTERS else ""
        if self._at(self._form.quote):
            return self._form.quote
        rest = self.text[self._place : self._place + len(self._form.quote)]
        return None if self._form.quote.startswith(rest) else ""

    def _string(self, quote: str) -> str | None:
        """The text between marks, which are passed; None where it is not whole."""
        start = self._place + len(quote)
        seen = max(start, self._seen)
        while (end := self._end_of(quote, seen)) is not None:
            behind = end + len(quote)
            if self._form.quote or _BEHIND.match(self.text, behind):
                self._place, self._seen = behind, 0
                value = self.text[start:end]
                return value if self._form.quote else _unescaped(value)
            if _SPACES.fullmatch(self.text, behind):  # it may be the end
                self._seen = end
                return None
            seen = behind
        self._seen = max(seen, self._seen)
        return None

    def _end_of(self, quote: str, start: int) -> int | None:
        """Where the next mark stands that may end a text; keeps in mind what has none."""
        if self._form.quote:
            end = self.text.find(quote, start)
            self._seen = max(start, len(self.text) - len(quote) + 1)
            return None if end < 0 else end
        found = _CHARACTERS[quote].match(self.text, start)
        end = found.end() if found else start
        self._seen = end
        return end if self.text.startswith(quote, end) else None

    def _word(self) -> str | None:
        """A number or a word as JSON; None where it is not whole or is none."""
        found = _WORD.match(self.text, self._place)
        word = found[0] if found else ""
        end = self._place + len(word)
        if end == len(self.text):
            begins = any(each.startswith(word) for each in _WORDS)
            is_open = bool(begins or _OPEN_WORD.fullmatch(word))
            self.can_be_call = is_open and len(word) <= MAX_WORD_CHARACTERS
            return None
        written = _WORDS.get(word) or _number(word)
        if not written:
            self.can_be_call = False
            return None
        self._place = end
        return written


def _number(word: str) -> str:
    """A number as JSON; empty where the word is none."""
    if len(word) > MAX_WORD_CHARACTERS:
        return ""
    if _NUMBER.fullmatch(word):
        return word
    try:
        value = float(word)
    except ValueError:
        return ""
    return json.dumps(value) if math.isfinite(value) else ""


def _unescaped(text: str) -> str:
    """A text of Python as it reads."""
    if "\\" not in text:
        return text
    value = _ESCAPE.sub(lambda found: _meant(found[0][1:]), text)
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _meant(escape: str) -> str:
    if escape[0] in "xuU" and len(escape) > 1:
        number = int(escape[1:], 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    if escape in "\\'\"/":
        return escape
    return _NAMED.get(escape, f"\\{escape}")


def _json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
