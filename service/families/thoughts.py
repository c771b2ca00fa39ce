"""The thoughts that a model writes before its answer, told from it by the markers of its family.

The chat template of a model that thinks writes or reads these markers, and that tells the form. A
prompt may end within thoughts; the output then begins there, without a first marker. Pure, and fed
piece by piece: what may become a marker is held back. What is read does not depend on where pieces
end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ThoughtForm:
    """The markers of one form. They may be special tokens."""

    begin: str
    end: str
    without: tuple[str, ...] = ()  # what begins an answer that no thoughts precede
    turn: str = ""  # the part of `end` that a call of a function follows too

    @property
    def marks(self) -> tuple[str, ...]:
        return (self.begin, self.end, *self.without)


# By the names that `ListModels` tells. The first whose marker a template has counts.
FORMS: Mapping[str, ThoughtForm] = {
    "gpt-oss": ThoughtForm(
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        ("<|channel|>final<|message|>", "<|channel|>commentary<|message|>"),
        "<|end|><|start|>assistant",
    ),
    "gemma-4": ThoughtForm("<|channel>thought", "<channel|>"),
    "cohere": ThoughtForm("<|START_THINKING|>", "<|END_THINKING|>"),
    "mistral": ThoughtForm("[THINK]", "[/THINK]"),
    "seed": ThoughtForm("<seed:think>", "</seed:think>"),
    "kimi": ThoughtForm("◁think▷", "◁/think▷"),
    "think": ThoughtForm("<think>", "</think>"),
}
_SIGNS = {
    "gpt-oss": "<|channel|>",
    "gemma-4": "<|channel>",
}  # where a template does not write the whole marker
PROMPT_END = 24  # tokens of a prompt, in which its last marker is looked for


class Split(NamedTuple):
    """A part of an output."""

    thoughts: str
    text: str


def form_in(templates: Iterable[str]) -> str:
    """The name of the form whose markers a template has; empty where none has any."""
    texts = list(templates)
    for name, form in FORMS.items():
        if any(sign in text for sign in (_SIGNS.get(name, form.begin), form.end) for text in texts):
            return name
    return ""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """The thoughts that an output may begin with, by the end of its prompt."""

    form: ThoughtForm
    is_open: bool  # the prompt ends within thoughts
    is_closed: bool  # the prompt ends behind thoughts, so that none follow
    call_marks: tuple[str, ...] = ()  # of calls of functions, with which a model may end thoughts
    keeps_spaces: bool = False  # behind thoughts, as a form of the answer has them

    @classmethod
    def after(
        cls,
        form: ThoughtForm,
        prompt_end: str,
        continued: str = "",
        call_marks: tuple[str, ...] = (),
    ) -> "Thoughts":
        """`continued` is the text of a last message that is not answered, but goes on."""
        end = prompt_end.rstrip()
        is_open = end.endswith(form.begin) or continued.rfind(form.begin) > continued.rfind(
            form.end
        )
        is_closed = end.endswith(form.end) or (bool(continued) and not is_open)
        return cls(form, is_open, is_closed, call_marks)


class ThoughtReader:
    """Reads one output: thoughts, if there are any, and then the answer."""

    def __init__(self, thoughts: Thoughts) -> None:
        self._form = thoughts.form
        self._ends = (self._form.end, *thoughts.call_marks)
        self._keeps_spaces = thoughts.keeps_spaces
        self._is_before, self._is_behind = not thoughts.is_closed, False
        self.is_inside = thoughts.is_open
        self._held = ""
        self._has_thoughts = False

    @property
    def has_begun(self) -> bool:
        """Whether it is known if the output has thoughts."""
        return not self._is_before

    @property
    def is_over(self) -> bool:
        """Whether the rest of the output is the answer."""
        return self.has_begun and not self.is_inside

    @property
    def num_open(self) -> int:
        """The characters at the end of open thoughts that may begin what ends them."""
        return max(_num_open(self._held, mark) for mark in self._ends) if self.is_inside else 0

    def read(self, text: str) -> Split:
        """The part of the output that is certain after this piece."""
        self._held += text
        if self._is_before and not self._begin():
            return Split("", "")
        thoughts = self._read_inside() if self.is_inside else ""
        return Split(thoughts, "" if self.is_inside else self._read_answer())

    def end(self) -> Split:
        """The part that was held back, as there is no more to come."""
        held, self._held = self._held, ""
        return Split(held.rstrip(), "") if self.is_inside else Split("", held)

    def _begin(self) -> bool:
        """Pass the first marker; False where more text is needed to know it."""
        body = self._held.lstrip()
        for mark in (self._form.begin, *self._form.without):
            if body.startswith(mark):
                self._is_before, self._held = False, body.removeprefix(mark)
                self.is_inside = mark == self._form.begin
                self._is_behind = not self.is_inside
                return True
        if any(mark.startswith(body) for mark in (self._form.begin, *self._form.without)):
            return False
        self._is_before = False
        return True

    def _read_inside(self) -> str:
        if not self._has_thoughts:
            self._held = self._held.lstrip()
        places = [(place, mark) for mark in self._ends if (place := self._held.find(mark)) >= 0]
        if places:
            place, mark = min(places)
            thoughts, rest = self._held[:place].rstrip(), self._held[place:]
            taken = mark if mark == self._form.end else self._form.turn
            self._held = rest.removeprefix(taken)
            self.is_inside, self._is_behind = False, True
            return thoughts
        certain = self._held[: len(self._held) - self.num_open].rstrip()
        self._held = self._held[len(certain) :]
        self._has_thoughts = self._has_thoughts or bool(certain)
        return certain

    def _read_answer(self) -> str:
        if self._is_behind and not self._keeps_spaces:
            self._held = self._held.lstrip()
            self._is_behind = not self._held
        text, self._held = self._held, ""
        return text


def _num_open(text: str, marker: str) -> int:
    """The characters at the end of a text that may begin a marker."""
    lengths = range(min(len(text), len(marker) - 1), 0, -1)
    return next((length for length in lengths if marker.startswith(text[-length:])), 0)
