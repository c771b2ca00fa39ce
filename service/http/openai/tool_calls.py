"""Calls of functions in the text that a model writes, in the forms of `families/call_forms.py`.

Some models leave out the mark before calls that are JSON: at the beginning of an answer JSON is
read without one. What is no call of a function that the request declares is text, and nothing of
it is lost; calls behind it are calls. Pure, and fed piece by piece: what may become a call is held
back, and is text as soon as it cannot. What is read does not depend on where pieces end.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from service.families.call_forms import CALL_FORMS
from service.http.openai.call_scan import CallScan
from service.http.openai.marked_scan import MarkedScan

ID_CHARACTERS = 9  # as Mistral's templates demand
SLICE = 2_048  # characters that are read at once
BETWEEN = " \n\r\t;,"  # two calls
# A text that began as a call and turned out to be none is read again, as it may have another mark.
# Of one output at most this many characters are read again; what follows them is text.
MAX_REREAD = 2**19
MIN_LOSS = 2**9  # characters that each such text counts for, at least
MAX_SPACES = 1_024  # that are held back, as they may stand before a call; and marks without one


@dataclass(frozen=True, slots=True)
class Call:
    """One call; its arguments are the text of a JSON object, or its beginning."""

    id: str
    name: str
    arguments: str
    is_cut: bool = False  # the output ended within it

    @property
    def values(self) -> dict[str, Any]:
        """The arguments as an object; nothing of those that were cut."""
        return {} if self.is_cut else dict(msgspec.json.decode(self.arguments))

    @property
    def fields(self) -> dict[str, Any]:
        """The call as OpenAI's clients read it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


Piece: TypeAlias = str | Call


class CallReader:
    """Reads one output, in which text and calls take turns.

    `_held` is what is not given yet. Before it stands `_opening`, a marker or brackets of what may
    be a call. At a place of a call, `_scan` reads one that has begun; elsewhere `_lost` follows
    JSON that turned out to be none, to find the next place.
    """

    def __init__(
        self,
        form: str,
        names: Collection[str],
        *,
        is_single: bool = False,
        is_required: bool = False,
        schemas: Mapping[str, Mapping[str, Any]] = {},
    ) -> None:
        """`schemas`, by name, say the types of arguments in forms that write them as texts."""
        self._form = CALL_FORMS[form]
        self._begin, self._end, self._begins = self._form.begin, self._form.end, self._form.begins
        self._schemas = schemas
        self._names = names
        self._is_single = is_single  # only the first call is given
        self._is_required = is_required  # the output is calls, and nothing else
        self._held = self._opening = ""
        self._is_at_call = False
        self._scan: CallScan | MarkedScan | None = None
        self._lost: _Brackets | None = None
        self._num_reread = 0
        self._is_marked = self._is_list = self._follows_call = self._has_text = False
        self._is_ended = False  # behind the mark that ends calls
        self.num_calls = 0

    def read(self, text: str) -> list[Piece]:
        """Pieces that are certain after this text."""
        pieces: list[Piece] = []
        for start in range(0, max(1, len(text)), SLICE):  # what is held is copied at each part
            self._held += text[start : start + SLICE]
            while self._advance(pieces):
                pass
        return pieces

    def end(self, *, is_cut: bool = False) -> list[Piece]:
        """Pieces that were held back, as there is no more to come.

        Of an output that was cut, what began as a call is one that `is_cut`.
        """
        pieces: list[Piece] = []
        while self._scan is not None and not (is_cut and self._is_call_begun):
            self._lose_call(pieces)
            pieces += self.read("")
        if is_cut and self._is_call_begun:
            scan = self._scan or self._new_scan(is_marked=True)
            self._give(_call(scan, scan.open_name, scan.open_arguments, is_cut=True), pieces)
            return pieces
        if self._follows_call and not self._opening:
            body = self._held.strip(BETWEEN)
            begins = self._begins if is_cut else ()
            if self._end.startswith(body) or any(each.startswith(body) for each in begins):
                return pieces
        self._leave(pieces)
        self._say(self._held, pieces)
        return pieces

    @property
    def _is_call_begun(self) -> bool:
        """Whether an output that ends here ends within a call."""
        if self._scan is not None:
            is_sure = self._is_marked or self._is_required or self.num_calls > 0
            return is_sure or self._scan.name is not None
        if self._is_required and not self.num_calls and not self._has_text:
            return True
        return self._is_marked and bool(self._opening)

    def _advance(self, pieces: list[Piece]) -> bool:
        """Move on by a part; False where more text is needed."""
        if self._scan is not None:
            return self._read_call(self._scan, pieces)
        return self._read_place(pieces) if self._is_at_call else self._read_text(pieces)

    def _read_text(self, pieces: list[Piece]) -> bool:
        held, bare = self._held, self._held.lstrip()
        if self._num_reread > MAX_REREAD or not bare:
            num_said = len(held) if bare else len(held) // MAX_SPACES * MAX_SPACES
            self._say(held[:num_said], pieces)
            self._held = held[num_said:]
            return False
        if not self._has_text and not self.num_calls:
            first = self._form.first
            if any(each != bare and each.startswith(bare) for each in (*self._begins, first)):
                return False
            if first and bare.startswith(first):
                behind = len(held) - len(bare) + len(first)
                self._enter(held[:behind], held[behind:], is_marked=True)
                return True
            if bare[0] in self._form.bare_brackets and not bare.startswith(self._begin):
                self._enter(held[: len(held) - len(bare)], bare, is_marked=False)
                return True
        places = [(at, mark) for mark in self._begins if (at := held.find(mark)) >= 0]
        place, mark = min(places, default=(-1, ""))
        num_open = max(_num_open(held, each) for each in self._begins)
        certain = _certain(held[: len(held) - num_open if place < 0 else place])
        end = self._lost.end_in(certain) if self._lost else None
        if end is not None:
            certain, self._lost, self._is_at_call = certain[:end], None, True
        self._say(certain, pieces)
        self._held = held[len(certain) :]
        if end is None and place >= 0:
            behind = place + (0 if mark == self._form.inner else len(mark))
            self._enter(held[len(certain) : behind], held[behind:], is_marked=True)
        return end is not None or place >= 0

    def _enter(self, opening: str, held: str, *, is_marked: bool) -> None:
        self._is_at_call, self._is_marked, self._is_list = True, is_marked, False
        self._is_ended = False
        self._opening, self._held, self._lost = opening, held, None

    def _read_place(self, pieces: list[Piece]) -> bool:
        """Read what may stand before, between or behind calls."""
        body = self._held.lstrip(BETWEEN)
        behind_call = self._follows_call and not self._opening
        if len(self._opening) + len(self._held) - len(body) > MAX_SPACES:
            self._num_reread = MAX_REREAD + 1
            self._leave(pieces)
        elif body.startswith(self._begin):
            self._open(self._begin)
            self._is_marked, self._is_list, self._is_ended = True, False, False
        elif self._begin.startswith(body):  # or a part of it
            return False
        elif behind_call and self._end and body.startswith(self._end):
            self._held, self._is_ended = body.removeprefix(self._end), True
        elif behind_call and self._end.startswith(body):
            return False
        elif body[0] == "[" and self._form.is_list and not self._is_list:
            self._open("[")
            self._is_list = True
        elif body[0] == "]" and self._is_list and behind_call:
            self._held, self._is_list = body[1:], False
        elif self._form.is_marked:
            self._read_mark(body, pieces, behind_call=behind_call)
        elif body[0] == "{":
            self._open("")
            self._scan = self._new_scan(is_marked=self._is_marked)
        else:
            self._leave(pieces)
        return True

    def _read_mark(self, body: str, pieces: list[Piece], *, behind_call: bool) -> None:
        """Begin the call that may stand here, in a form of marks."""
        inner = self._form.inner
        is_next = inner != "" and (body.startswith(inner) or inner.startswith(body))
        if self._form.literals is not None and not inner:
            is_next = self._is_list or (not self._form.is_list and not self._is_ended)
        if behind_call and not is_next:
            self._leave(pieces)
            return
        self._open("")
        self._scan = self._new_scan(is_marked=True)

    def _new_scan(self, *, is_marked: bool) -> CallScan | MarkedScan:
        if self._form.is_marked:
            return MarkedScan(self._form, self._names, self._schemas)
        return CallScan(self._names, is_marked=is_marked)

    def _open(self, mark: str) -> None:
        """Move spaces and a mark from what is held to what stands before a call."""
        num_read = len(self._held) - len(self._held.lstrip(BETWEEN)) + len(mark)
        self._opening += self._held[:num_read]
        self._held = self._held[num_read:]

    def _read_call(self, scan: CallScan | MarkedScan, pieces: list[Piece]) -> bool:
        scan.feed(self._held)
        self._held = ""
        if not scan.can_be_call:
            self._lose_call(pieces)
            return True
        if scan.end is None:
            return False
        assert scan.name is not None, "a whole call has a name"
        assert scan.arguments is not None, "a whole call has arguments"
        self._give(_call(scan, scan.name, scan.arguments), pieces)
        self._held = scan.text[scan.end :]
        self._opening, self._scan, self._follows_call = "", None, True
        return True

    def _give(self, call: Call, pieces: list[Piece]) -> None:
        if not (self._is_single and self.num_calls):
            pieces.append(call)
        self.num_calls += 1

    def _lose_call(self, pieces: list[Piece]) -> None:
        """Go on with what cannot be a call as with text, to its end or to the next marker."""
        assert self._scan is not None, "a call has begun"
        self._num_reread += max(self._scan.num_read, MIN_LOSS)
        self._held, self._scan = self._scan.text + self._held, None
        self._lost = _Brackets(self._form.brackets) if self._form.brackets else None
        if self._form.is_marked and self._held.startswith(self._begins):  # it is read once
            self._opening, self._held = self._opening + self._held[0], self._held[1:]
        self._leave(pieces)

    def _leave(self, pieces: list[Piece]) -> None:
        """Give what stands before no call, without the spaces behind one."""
        opening = self._opening
        if self._follows_call:
            opening = opening.lstrip()
            self._held = self._held if opening else self._held.lstrip()
        self._opening, self._is_at_call, self._follows_call = "", False, False
        self._say(opening, pieces)
        self._has_text = True

    def _say(self, text: str, pieces: list[Piece]) -> None:
        if text:
            pieces.append(text)
            self._has_text = True


class _Brackets:
    """Finds the end of what may be no call, by brackets that no quotes hold."""

    def __init__(self, pairs: tuple[str, str]) -> None:
        self._opening, self._closing = pairs
        self._depth = 0
        self._quote = ""
        self._is_escaped = False

    def end_in(self, text: str) -> int | None:
        """Behind the bracket that closes the first one, if it is in this piece."""
        for place, character in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._quote:
                self._is_escaped = character == "\\"
                self._quote = "" if character == self._quote else self._quote
            elif character in "\"'":
                self._quote = character
            else:
                self._depth += (character in self._opening) - (character in self._closing)
                if self._depth <= 0 and character in self._closing:
                    return place + 1
        return None


def _call(scan: CallScan | MarkedScan, name: str, arguments: str, *, is_cut: bool = False) -> Call:
    own = scan.id if isinstance(scan, MarkedScan) else ""
    return Call(own or uuid4().hex[:ID_CHARACTERS], name, arguments, is_cut)


def _certain(text: str) -> str:
    """The part of a text that is given even where a call follows: without spaces at its end."""
    num_words = len(text.rstrip())
    return text[: num_words + (len(text) - num_words) // MAX_SPACES * MAX_SPACES]


def _num_open(text: str, marker: str) -> int:
    """The characters at the end of a text that may begin a marker."""
    lengths = range(min(len(text), len(marker) - 1), 0, -1)
    return next((length for length in lengths if marker.startswith(text[-length:])), 0)
