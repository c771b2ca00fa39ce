"""The forms in which families of models write calls of functions, as the rows of one table.

A call stands between marks: those around all calls (`opening`, `closing`), around each (`before`,
`behind`) and between two. `begin` is the mark by which calls are told from text, and `end` is what
may stand behind them. A row without `named` and `keys` has an object of JSON for a call. In others
the name comes first, then `named`, and behind it the arguments: an object of JSON, `literals` of
another language, or one value after the other between the marks of `keys`. What is read may have
other spaces around marks. Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Keys:
    """Marks around the name and the value of each argument; texts are written as they are."""

    open: str
    close: str  # between name and value
    value_close: str
    close_of_others: str = ""  # in place of `close`, before a value that is no text


@dataclass(frozen=True, slots=True)
class Literals:
    """How arguments are written that are no JSON: names and values between brackets."""

    close: str  # the bracket behind them
    equals: str  # between a name and its value
    quote: str = ""  # the mark around texts, which are written as they are; empty: as in Python
    between: str = ", "


@dataclass(frozen=True, slots=True)
class CallForm:
    """The form of one family."""

    begin: str
    signs: tuple[str, ...]  # of a template: all of them
    end: str = ""
    opening: str = ""
    closing: str = ""
    before: str = ""
    behind: str = ""
    between: str = ""
    name_key: str = "name"
    arguments_key: str = "arguments"
    named: str = ""
    name_ends: tuple[str, ...] = ()  # that are not `named` itself, but stand before it
    index: str = ""  # an expression of what stands behind the name
    keys: Keys | None = None
    literals: Literals | None = None
    turn: str = ""  # what a family may write before `begin`
    others: tuple[str, ...] = ()  # what may stand in place of `begin`, as far as the name
    first: str = ""  # another mark in place of `begin`, at the start of an output only
    is_bare: bool = False  # required calls are written without a mark
    may_follow_text: bool = True

    @property
    def is_marked(self) -> bool:
        """Whether marks, and not keys of JSON, tell the name from the arguments."""
        return bool(self.named or self.keys)

    @property
    def is_list(self) -> bool:
        """Whether brackets may stand around several calls."""
        return not self.is_marked or (self.literals is not None and "[" in self.opening)

    @property
    def brackets(self) -> tuple[str, str] | None:
        """Pairs around a call that has no mark of its own, by which the end of one is found."""
        if not self.is_marked:
            return "{[", "}]"
        return None if self.inner or self.literals is None else ("(", ")")

    @property
    def bare_brackets(self) -> str:
        """Brackets that begin a call without its mark."""
        if self.is_marked:
            return "[" if self.is_bare else ""
        return "{["

    @property
    def inner(self) -> str:
        """The mark that begins a call behind `begin`, or behind another call."""
        return self.before.removeprefix(self.begin).strip()

    @property
    def close(self) -> str:
        """The mark that ends one call."""
        return self.behind.removesuffix(self.end).strip()

    @property
    def begins(self) -> tuple[str, ...]:
        """Marks by which calls are told from text."""
        inner = (self.inner,) if self.is_marked and self.inner else ()
        turn = (f"{self.turn}{self.begin}",) if self.turn else ()
        return (*turn, self.begin, *self.others, *inner)

    @property
    def call_marks(self) -> tuple[str, ...]:
        """Marks by which calls are told from thoughts, which they may end."""
        return (f"{self.turn}{self.begin}", *self.others)

    @property
    def marks(self) -> tuple[str, ...]:
        """Marks in which special tokens may be."""
        around = (self.begin, self.end, self.opening, self.closing, self.before, self.behind)
        of_keys = (self.keys.open, self.keys.close, self.keys.value_close) if self.keys else ()
        quote = (self.literals.quote,) if self.literals else ()
        return (*around, self.named, self.turn, *self.others, *of_keys, *quote)


_SECTION = "\uff5ctool\u2581call"
_CALLS, _CALLS_END = f"<{_SECTION}s\u2581begin\uff5c>", f"<{_SECTION}s\u2581end\uff5c>"
_CALL, _CALL_END = f"<{_SECTION}\u2581begin\uff5c>", f"<{_SECTION}\u2581end\uff5c>"
_SEP, _DSML = "<\uff5ctool\u2581sep\uff5c>", "\uff5cDSML\uff5c"
_GLM = CallForm(
    "<tool_call>",
    ("<arg_key>", "<arg_value>"),
    before="<tool_call>",
    named="\n",
    name_ends=("\n", "<"),
    keys=Keys("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    behind="</tool_call>",
    between="\n",
)


_PYTHON = Literals(")", "=")


def _gemma(begin: str, end: str, quote: str) -> CallForm:
    """The form of calls of Gemma, whose texts stand between marks of their own."""
    return CallForm(
        begin,
        (f"{begin}call:",),
        end,
        before=f"{begin}call:",
        behind=end,
        named="{",
        literals=Literals("}", ":", quote, ","),
    )


def _listed(begin: str, sign: str = "", end: str = "") -> CallForm:
    """The form of a list of JSON behind a mark."""
    return CallForm(
        begin, (sign or begin,), end, opening=f"{begin}[", closing=f"]{end}", between=", "
    )


# By the names that `ListModels` tells, the most telling signs first.
CALL_FORMS: Mapping[str, CallForm] = {
    "qwen-coder": CallForm(
        "<tool_call>",
        ("<function=", "<parameter="),
        end="</tool_call>",
        before="<tool_call>\n<function=",
        named=">\n",
        keys=Keys("<parameter=", ">\n", "\n</parameter>\n"),
        behind="</function>\n</tool_call>",
        between="\n",
    ),
    "glm-4.7": replace(
        _GLM,
        signs=("</arg_key><arg_value>",),
        named="",
        keys=Keys("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
    ),
    "glm": _GLM,
    "minimax": CallForm(
        "<minimax:tool_call>",
        ("<minimax:tool_call>", "<invoke name="),
        end="</minimax:tool_call>",
        opening="<minimax:tool_call>\n",
        before='<invoke name="',
        named='">\n',
        keys=Keys('<parameter name="', '">', "</parameter>\n"),
        behind="</invoke>\n",
        closing="</minimax:tool_call>",
    ),
    "deepseek-v3.2": CallForm(
        f"<{_DSML}function_calls>",
        (f"{_DSML}",),
        end=f"</{_DSML}function_calls>",
        opening=f"<{_DSML}function_calls>\n",
        before=f'<{_DSML}invoke name="',
        named='">\n',
        keys=Keys(
            f'<{_DSML}parameter name="',
            '" string="true">',
            f"</{_DSML}parameter>\n",
            '" string="false">',
        ),
        behind=f"</{_DSML}invoke>\n",
        closing=f"</{_DSML}function_calls>",
    ),
    "deepseek": CallForm(
        _CALLS,
        (_CALLS, "```json"),
        end=_CALLS_END,
        opening=_CALLS,
        before=f"{_CALL}function{_SEP}",
        named="\n```json\n",
        behind=f"\n```{_CALL_END}",
        between="\n",
        closing=_CALLS_END,
    ),
    "deepseek-v3.1": CallForm(
        _CALLS,
        (_CALLS,),
        end=_CALLS_END,
        opening=_CALLS,
        before=_CALL,
        named=_SEP,
        behind=_CALL_END,
        closing=_CALLS_END,
    ),
    "gemma": _gemma("<start_function_call>", "<end_function_call>", "<escape>"),
    "gemma-4": _gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
    "lfm2": CallForm(
        "<|tool_call_start|>",
        ("<|tool_", "_start|>"),
        end="<|tool_call_end|>",
        opening="<|tool_call_start|>[",
        named="(",
        literals=_PYTHON,
        between=", ",
        closing="]<|tool_call_end|>",
    ),
    "olmo-3": CallForm(
        "<function_calls>",
        ("<function_calls>",),
        end="</function_calls>",
        opening="<function_calls>",
        named="(",
        literals=_PYTHON,
        between="\n",
        closing="</function_calls>",
    ),
    "pythonic": CallForm(
        "<|python_start|>",
        ("[func_name1(",),
        end="<|python_end|>",
        opening="[",
        named="(",
        literals=_PYTHON,
        between=", ",
        closing="]",
        is_bare=True,
    ),
    "kimi": CallForm(
        "<|tool_calls_section_begin|>",
        ("<|tool_calls_section_begin|>",),
        end="<|tool_calls_section_end|>",
        opening="<|tool_calls_section_begin|>",
        before="<|tool_call_begin|>functions.",
        named="<|tool_call_argument_begin|>",
        name_ends=(":",),
        index=":[0-9]{1,4}",
        behind="<|tool_call_end|>",
        closing="<|tool_calls_section_end|>",
    ),
    "gpt-oss": CallForm(
        "<|channel|>commentary to=functions.",
        ("<|channel|>", "functions."),
        end="<|call|>",
        before="<|channel|>commentary to=functions.",
        named=" <|constrain|>json<|message|>",
        name_ends=(" ", "<"),
        behind="",
        turn="<|end|><|start|>assistant",
        others=(
            "<|end|><|start|>assistant to=functions.",
            "<|end|><|start|>assistant<|channel|>analysis to=functions.",
            "<|channel|>analysis to=functions.",
        ),
        first="to=functions.",
        may_follow_text=False,
    ),
    "mistral-args": CallForm(
        "[TOOL_CALLS]",
        ("[TOOL_CALLS]", "[ARGS]"),
        before="[TOOL_CALLS]",
        named="[ARGS]",
    ),
    "mistral": _listed("[TOOL_CALLS]"),
    "cohere": replace(
        _listed("<|START_ACTION|>", end="<|END_ACTION|>"),
        name_key="tool_name",
        arguments_key="parameters",
    ),
    "phi-4": _listed("functools", "<|tool|>"),
    "granite": _listed("<|tool_call|>"),
    "hermes": CallForm(
        "<tool_call>",
        ("<tool_call>",),
        end="</tool_call>",
        before="<tool_call>\n",
        behind="\n</tool_call>",
        between="\n",
    ),
    "llama": CallForm(
        "<|python_tag|>",
        ("ipython", '"parameters": '),
        end="<|eom_id|>",
        between="; ",
        arguments_key="parameters",
        is_bare=True,
    ),
}


# What a template does not write: its comments, and what it compares.
_UNWRITTEN = re.compile(r"\{#.*?#\}|\{%[-+]?\s*(?:if|elif|for)\b.*?%\}", re.DOTALL)


def declares_tools(template: str) -> bool:
    """Whether a template tells the model of functions."""
    return "tools" in template


def call_form_in(template: str) -> str:
    """The name of the form that a template writes; empty where it declares no functions."""
    if not declares_tools(template):
        return ""
    written = _UNWRITTEN.sub("", template)
    return next(
        (name for name, form in CALL_FORMS.items() if _all_in(form.signs, written)),
        "",
    )


def _all_in(signs: Iterable[str], template: str) -> bool:
    return all(sign in template for sign in signs)
