"""The form that an output must have, as a request states it: one of four kinds of grammar.

    json_schema    a value of JSON; the text is the schema
    regex          the whole output matches
    choice         one of several texts; the text is a list of JSON
    lark           a context-free grammar in llguidance's dialect of Lark, whose start is `start`

Checks sizes and what would take unbounded time to compile. Whether the rest of a grammar can be
kept to is known once it is compiled (`service/grammars/compiler.py`). Pure.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.errors import InvalidArgument, invalid_field
from service.grammars.schema_checks import check_schema

KINDS = ("json_schema", "regex", "choice", "lark")
MAX_CHARACTERS = 65_536  # of one grammar
MAX_CHOICES = 1_024
# What vLLM's `structured_outputs` calls the kinds.
VLLM_NAMES = {"json": "json_schema", "regex": "regex", "choice": "choice", "grammar": "lark"}
# Where a grammar in Lark has a schema; what follows is its object.
INNER_SCHEMA = "%json"


@dataclass(frozen=True, slots=True)
class Grammar:
    """One grammar, checked; equal ones compile to the same."""

    kind: str
    text: str
    has_marks: bool = False  # its rules `mark` and its lazy ones may stand for special tokens

    @classmethod
    def of(cls, kind: str, value: object) -> "Grammar":
        """Read the value of the field that is named like the kind. Raises `InvalidArgument`."""
        if kind == "json_schema":
            text = _schema(value)
        elif kind == "choice":
            text = json.dumps(_choices(value), ensure_ascii=False)
        elif isinstance(value, str) and value:
            text = value
        else:
            raise invalid_field(kind, "is empty or no text, expected a text")
        _check_size(kind, len(text))
        if kind == "lark":
            with_schemas(text, check_schema)
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise invalid_field(kind, "has a half of a surrogate pair, expected Unicode")
        return cls(kind, text)

    @property
    def has_leading_space(self) -> bool:
        """Whether it is a choice of which a text begins with a space."""
        return self.kind == "choice" and any(each[0].isspace() for each in self.choices)

    @property
    def choices(self) -> list[str]:
        """The texts of a choice."""
        texts: list[str] = json.loads(self.text)
        return texts


def take_grammar(values: dict[str, Any]) -> Grammar | None:
    """Remove a grammar's field from names and values; None where there is none.

    It is one of the kinds, or vLLM's `structured_outputs`. Raises `InvalidArgument`.
    """
    outer = values.pop("structured_outputs", None)
    named = {name: values.pop(name) for name in KINDS if values.get(name) is not None}
    if outer is not None:
        named |= _of_vllm(outer)
    if not named:
        return None
    if len(named) > 1:
        first, second, *_ = named
        raise invalid_field(second, f"is set beside {first}, expected one of {', '.join(KINDS)}")
    ((kind, value),) = named.items()
    return Grammar.of(kind, value)


def with_schemas(lark: str, change: Callable[[dict[str, Any]], object]) -> str:
    """A grammar in Lark with its schemas changed. Raises `InvalidArgument`."""
    parts: list[str] = []
    rest = lark
    while INNER_SCHEMA in rest:  # found behind the last schema, which may itself have the word
        before, _, behind = rest.partition(INNER_SCHEMA)
        behind = behind.lstrip()
        try:
            schema, end = json.JSONDecoder().raw_decode(behind)
        except (ValueError, RecursionError) as error:
            raise invalid_field("lark", f"has {INNER_SCHEMA}, expected JSON behind it") from error
        if not isinstance(schema, dict):
            raise invalid_field("lark", f"has {INNER_SCHEMA}, expected an object behind it")
        written = json.dumps(change(schema), ensure_ascii=False)
        parts.append(f"{before}{INNER_SCHEMA} {written}")
        rest = behind[end:]
    return "".join([*parts, rest])


def schemas_of(grammar: Grammar) -> list[tuple[int, dict[str, Any]]]:
    """The schemas of a grammar, with their lines in a grammar in Lark. Raises `InvalidArgument`."""
    if grammar.kind == "json_schema":
        return [(1, json.loads(grammar.text))]
    found: list[dict[str, Any]] = []
    lines: list[int] = []

    def take(schema: dict[str, Any]) -> dict[str, Any]:
        found.append(schema)
        return {}

    if grammar.kind == "lark":
        marked = with_schemas(grammar.text, take)
        lines = [before.count("\n") for before in marked.split(f"{INNER_SCHEMA} {{}}")[:-1]]
    return [(1 + sum(lines[: place + 1]), schema) for place, schema in enumerate(found)]


def _of_vllm(outer: object) -> dict[str, Any]:
    name = "structured_outputs"
    if isinstance(outer, str):
        outer = _parsed(name, outer)
    if not isinstance(outer, Mapping):
        raise invalid_field(name, f"is no object, expected one of {', '.join(VLLM_NAMES)} in it")
    given = {key: value for key, value in outer.items() if value not in (None, False)}
    if given == {"json_object": True}:
        return {"json_schema": {"type": "object"}}
    if len(given) != 1 or not given.keys() <= VLLM_NAMES.keys():
        unknown = [str(key)[:64] for key in given if key not in VLLM_NAMES]
        has = f"has {unknown[0]}" if unknown else f"has {len(given)} fields"
        raise invalid_field(name, f"{has}, expected one of {', '.join(VLLM_NAMES)}, json_object")
    ((key, value),) = given.items()
    return {VLLM_NAMES[key]: value}


def _schema(value: object) -> str:
    """The text of a schema; the order of properties is kept, as outputs have it."""
    if isinstance(value, str):
        _check_size("json_schema", len(value))
        value = _parsed("json_schema", value)
    if not isinstance(value, Mapping):
        raise invalid_field("json_schema", "is no object, expected a JSON schema")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except RecursionError as error:
        raise invalid_field("json_schema", "is nested too deeply") from error
    except ValueError as error:
        raise invalid_field(
            "json_schema", "has a number beyond those of JSON, such as 1e400 or NaN"
        ) from error
    _check_size("json_schema", len(text))  # before it is walked, which takes longer
    check_schema(value)
    return text


def _parsed(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid_field(name, f"is not JSON: {str(error)[:200]}") from error


def _choices(value: object) -> Sequence[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise invalid_field("choice", "is no list, expected texts to choose from")
    texts = list(value)
    if not 1 <= len(texts) <= MAX_CHOICES:
        raise invalid_field("choice", f"has {len(texts)} texts, expected 1 to {MAX_CHOICES}")
    if not all(isinstance(text, str) and text for text in texts):
        raise invalid_field("choice", "has an empty text or no text, expected texts")
    return texts


def _check_size(kind: str, count: int) -> None:
    if count > MAX_CHARACTERS:
        raise InvalidArgument(
            f"{kind} has {count} characters, expected at most {MAX_CHARACTERS}", kind
        )
