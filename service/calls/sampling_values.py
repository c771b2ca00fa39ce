"""Reading of parameters that come as names and values of JSON, whose types are not known.

As in Triton's input `sampling_parameters`, whose clients write numbers as texts too. Pure.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from service.calls.record import About, abouts, bounds_of, shown
from service.calls.sampling import MAX_TOKEN_ID, STRINGS, Sampling
from service.errors import InvalidArgument, invalid_field
from service.grammars.form import KINDS as GRAMMAR_KINDS
from service.grammars.form import take_grammar

MAX_TEXT_CHARACTERS = 65_536  # of a request's parameters as JSON
MAX_NESTING = 100  # of lists and objects in it: those of a schema, and a few around it
_MARKS = re.compile(r'\\.|["\[\]{}]', re.DOTALL)  # an escape is one, so no end of its string
_PLACE = re.compile(r"\$\.(\w+)(?:\[(\d+)\])?")
_FIELDS = {each.name: each for each in abouts(Sampling) if each.name not in ("grammar", "named")}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def sampling_of(values: Mapping[str, object]) -> Sampling:
    """Parameters from names and values; numbers and booleans also as text, None if absent.

    Raises `InvalidArgument`.
    """
    left = dict(values)
    grammar = take_grammar(left)
    known = [*_FIELDS, *GRAMMAR_KINDS]
    for name in left:
        if name not in known:
            raise InvalidArgument(
                f"{shown(name)} is not a sampling parameter, known are {', '.join(known)}"
            )
    present: dict[str, Any] = {
        name: _usual(_FIELDS[name], value) for name, value in left.items() if value is not None
    }
    form = {} if grammar is None else {"grammar": grammar}
    try:
        return msgspec.convert(
            {**present, **form, "named": [*present]}, Sampling, strict=False, str_keys=True
        )
    except msgspec.ValidationError as error:
        raise _fault(str(error), present) from error


def sampling_in(text: str) -> Sampling:
    """Parameters from a JSON object. Raises `InvalidArgument`."""
    name = "sampling_parameters"
    if len(text) > MAX_TEXT_CHARACTERS:
        raise invalid_field(
            name, f"has {len(text)} characters, the server takes at most {MAX_TEXT_CHARACTERS}"
        )
    if (nesting := _nesting(text)) > MAX_NESTING:  # else the parser's stack would tell
        raise invalid_field(name, f"is nested {nesting} deep, expected at most {MAX_NESTING}")
    try:
        values = json.loads(text, object_pairs_hook=_without_duplicates)
    except ValueError as error:  # also a number of thousands of digits
        raise invalid_field(name, f"is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise invalid_field(name, f"is {shown(values)}, expected an object")
    return sampling_of(values)


def _usual(about: About, value: object) -> object:
    """The usual spelling of a value, where it has another."""
    aka = about.says.get("aka", {})
    for spelling in (each for each in aka if value in (each, str(each))):
        return aka[spelling]
    is_list = about.says.get("unit") == STRINGS
    return [value] if is_list and isinstance(value, str) else value


def _fault(text: str, values: Mapping[str, Any]) -> InvalidArgument:
    """The error of a value of another type, which msgspec has told of."""
    place = _PLACE.search(text)
    assert place is not None, "it names the field"
    name, index, value = place[1], place[2], values[place[1]]
    if index is not None:
        element = shown(value[int(index)])
        if _FIELDS[name].says["unit"] == STRINGS:
            return invalid_field(name, f"has {element}, expected {STRINGS}")
        return invalid_field(name, f"has the token id {element}, expected 0 to {MAX_TOKEN_ID}")
    if isinstance(value, Mapping) and _FIELDS[name].default == {}:
        return invalid_field(name, "has other keys or values, expected token ids and numbers")
    return invalid_field(name, f"is {shown(value)}, expected {_expected(_FIELDS[name])}")


def _expected(about: About) -> str:
    """The kind of values that a field takes, in words."""
    if (unit := about.says.get("unit")) is not None:
        return f"a mapping of {unit} to numbers" if about.default == {} else f"a list of {unit}"
    kind = next(each for each in (*get_args(about.kind), about.kind) if each in _KINDS)
    bound = next((f", {each}" for each in bounds_of(Sampling) if each.name == about.name), "")
    return f"{_KINDS[kind]}{bound}"


def _nesting(text: str) -> int:
    """The nesting depth of JSON's brackets, without those in strings."""
    depth = deepest = 0
    is_in_string = False
    for mark in _MARKS.findall(text):
        if mark == '"':
            is_in_string = not is_in_string
        elif not is_in_string:
            depth += (mark in "[{") - (mark in "]}")
            deepest = max(deepest, depth)
    return deepest


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    pairs_by_key: dict[str, Any] = {}
    for name, value in pairs:
        if name in pairs_by_key:
            raise InvalidArgument(f"{shown(name)} is given twice, expected once")
        pairs_by_key[name] = value
    return pairs_by_key
