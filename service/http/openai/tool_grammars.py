"""The grammar of an output that calls functions, in the form of a model's own calls.

The markers of some forms are special tokens, which no text has: their calls are bare JSON, which
`CallReader` reads at the beginning of an answer. Where calls are free to be made, text is any but
one that begins as such JSON does; what follows a marker, or begins so, is a call.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.errors import InvalidArgument
from service.grammars.form import Grammar
from service.http.openai.tool_calls import MARKERS
from service.http.status import invalid

# Spaces, then what is no brace, and no bracket before one. `HEAD` ends at its first marker.
_TEXT = r"TEXT: /[ \t\n]*(([^ \t\n{\[]|\[[^ \t\n{\[])(.|\n)*)?\[?/"


@dataclass(frozen=True, slots=True)
class _Form:
    """Signs around calls, between two of them, and around the parts of each."""

    arguments: str  # the name of the field
    before: str = ""
    behind: str = ""
    between: str = ""
    opening: str = ""  # of all of them
    closing: str = ""


_FORMS = {
    "hermes": _Form("arguments", "<tool_call>\n", "\n</tool_call>", "\n"),
    "llama": _Form("parameters", between="; "),
    "mistral": _Form("arguments", between=", ", opening="[", closing="]"),
}

# What the library says of a schema in such a grammar: line, column and reason.
_SCHEMA_ERROR = re.compile(
    r"cannot be kept to: at (\d+)\(\d+\): failed to compile JSON schema: (.*)"
)

# Where text and calls may take turns: the marker of Mistral's is a token that no grammar has.
FREE_FORMS = ("hermes", "llama")


@dataclass(frozen=True, slots=True)
class Callable:
    """A function that must be called, or may be beside others."""

    field: str  # of the body, that declares it
    name: str
    parameters: dict[str, Any] | None


def grammar_of_calls(
    form: str, functions: Sequence[Callable], *, is_single: bool, may_be_text: bool = False
) -> Grammar:
    """The grammar of one call, or of one or more, of any of the functions. Raises `HttpError`.

    With `may_be_text` the output is text, in which there may be calls.
    """
    around = _FORMS[form]
    start = _start_of(form, is_single=is_single) if may_be_text else ["start: calls"]
    one = " | ".join(f"call{place}" for place in range(len(functions)))
    marked = _sequence(around.before, "call", around.behind)
    more = "" if is_single else f" ({_literal(around.between)} {marked})*"
    rules = [*start, f"calls: {_sequence(around.opening, marked + more, around.closing)}"]
    rules.append(f"call: {one}")
    for place, function in enumerate(functions):
        name = json.dumps(function.name, ensure_ascii=False)
        head = f'{{"name": {name}, "{around.arguments}": '
        rules.append(f"call{place}: {_literal(head)} arguments{place} {_literal('}')}")
        rules.append(f"arguments{place}: %json {_schema(function)}")
    try:
        return Grammar.of("lark", "\n".join(rules))
    except InvalidArgument as error:
        raise invalid(f"tools is too large: {error}", "tools") from error


def at_function(
    error: InvalidArgument, grammar: str, functions: Sequence[Callable]
) -> InvalidArgument:
    """The refusal of such a grammar; of a schema in it, at the field that has the schema."""
    at = _SCHEMA_ERROR.search(str(error)) if error.field == "lark" else None
    line = grammar.split("\n")[int(at[1]) - 1] if at else ""
    rule = re.match(r"arguments(\d+): ", line)
    if at is None or rule is None:
        return error
    field = f"{functions[int(rule[1])].field}.parameters"
    return InvalidArgument(f"{field} cannot be kept to: {at[2]}", field)


def _start_of(form: str, *, is_single: bool) -> list[str]:
    """The rules of text with calls in it: behind a marker, or bare at its beginning."""
    around, (marker, _) = _FORMS[form], MARKERS[form]
    head = f"head[lazy]: TEXT {_literal(marker)}"
    if not around.before:
        return ["start: TEXT | calls | head calls", head, _TEXT]
    inner = _sequence(around.before.removeprefix(marker), "call", around.behind)
    start = "start: TEXT | block | call" if is_single else "start: block* TEXT | call"
    return [start, f"block: head {inner}", head, _TEXT]


def _schema(function: Callable) -> str:
    """The schema of a function's arguments, which are an object."""
    try:
        return Grammar.of("json_schema", function.parameters or {"type": "object"}).text
    except InvalidArgument as error:
        field = f"{function.field}.parameters"
        raise error.named({"json_schema": field}, {}) from error


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _sequence(before: str, rule: str, behind: str) -> str:
    """A rule with texts around it, if there are any."""
    texts = [_literal(text) if text else "" for text in (before, behind)]
    return " ".join(filter(None, (texts[0], rule, texts[1])))
