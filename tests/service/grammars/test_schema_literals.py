"""Literals and bounds of schemas come out exactly, or are refused with their path."""

import json
import random
import re
from calendar import monthrange
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from service.errors import InvalidArgument
from service.grammars.checks import CheckedCompiler
from service.grammars.compiler import GrammarCompiler, GrammarMatcher, GrammarVocabulary
from service.grammars.form import Grammar
from service.grammars.schema_literals import written
from tests.fakes.grammars import BYTES, VOCAB_SIZE, piece_compiler
from tests.fakes.sessions import PATIENCE_S

pytest.importorskip("llguidance")
VOCABULARY = GrammarVocabulary(BYTES, (256,), VOCAB_SIZE, lambda text: list(text.encode()))
LEAST_64 = -(2**63)
PATH = re.compile(r"cannot be kept to: at '(.*)': ")


@pytest.fixture(scope="module")
def checked() -> Iterator[CheckedCompiler]:
    compiler = CheckedCompiler(GrammarCompiler(VOCABULARY), PATIENCE_S)
    yield compiler
    compiler.close()


def is_said(matcher: GrammarMatcher, text: str) -> bool:
    """Whether this is a whole output."""
    matcher = matcher.copy()
    if matcher.num_valid(list(text.encode())) < len(text.encode()):
        return False
    for byte in text.encode():
        matcher.take(byte)
    return matcher.is_accepting


def an_output(matcher: GrammarMatcher, choices: random.Random) -> str:
    """A text of the language, of bytes that are drawn."""
    matcher = matcher.copy()
    content = b""
    while not matcher.is_complete and len(content) < 2_000:
        bits = np.unpackbits(matcher.mask, bitorder="little")
        allowed = matcher.forced[:1] or tuple(np.flatnonzero(bits).tolist())
        token_id = choices.choice([each for each in allowed if BYTES[each]] or [256])
        if token_id == 256:
            break
        matcher.take(token_id)
        content += BYTES[token_id]
    return content.decode()


NUMBERS = (
    some.integers(-(2**70), 2**70)
    | some.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, 2**63, 2**64 - 1])
    | some.sampled_from([LEAST_64, LEAST_64 + 1, LEAST_64 - 1, 1234567890123456789, 10**30])
    | some.integers(-300, 300)
    | some.floats(allow_nan=False, allow_infinity=False)
)
TEXTS = some.text(
    some.sampled_from([*map(chr, range(0x20)), "\x7f", "\x80", "\x85", "\u2028", "\ufeff", "/"])
    | some.sampled_from(["a", '"', "\\", "\u00e9", "\u4e2d", "\U0001f600", "\uffff", "\U0010ffff"]),
    max_size=4,
)
VALUES: some.SearchStrategy[Any] = some.recursive(
    NUMBERS | TEXTS | TEXTS | some.booleans() | some.none(),
    lambda inner: some.lists(inner, max_size=2) | some.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)


def same(one: object, other: object) -> bool:
    """Equal values of JSON: 1 is not true, and whole numbers are compared as such."""
    return written(one) == written(other)


@given(values=some.lists(VALUES, min_size=1, max_size=3), is_const=some.booleans())
@settings(max_examples=80, deadline=None, database=None, derandomize=True)
def test_a_literal_comes_out_as_it_is_or_is_refused_with_its_path(
    checked: CheckedCompiler, values: list[Any], is_const: bool
) -> None:
    """Of const and enum, whatever JSON they hold; every output is one of them."""
    literal = {"const": values[0]} if is_const else {"enum": values}
    schema = {"type": "object", "properties": {"a": literal}, "required": ["a"]}
    try:
        matcher = checked.compile(Grammar.of("json_schema", schema))
    except InvalidArgument as error:
        refusal = str(error)
    else:
        check_outputs(matcher, values[:1] if is_const else values)
        return
    at = PATH.search(refusal)
    assert at is not None, refusal
    assert at[1] == f"properties.a.{'const' if is_const else 'enum'}"


def check_outputs(matcher: GrammarMatcher, allowed: list[Any]) -> None:
    for value in allowed:
        text = written(value)
        assert same(json.loads(text), value)
        assert is_said(matcher, f'{{"a": {text}}}')
    for seed in range(3):
        output = an_output(matcher, random.Random(seed))  # noqa: S311
        assert any(same(json.loads(output), {"a": value}) for value in allowed), output


def exactly(number: float) -> Fraction:
    """A number as JSON writes it."""
    return Fraction(str(number))


@given(one=NUMBERS, other=NUMBERS, is_exclusive=some.booleans(), is_whole=some.booleans())
@settings(max_examples=80, deadline=None, database=None, derandomize=True)
def test_bounds_are_kept_to_or_refused(
    checked: CheckedCompiler, one: float, other: float, is_exclusive: bool, is_whole: bool
) -> None:
    low, high = sorted((one, other), key=exactly)
    prefix = "exclusiveM" if is_exclusive else "m"
    schema: dict[str, Any] = {f"{prefix}inimum": low, f"{prefix}aximum": high}
    schema["type"] = "integer" if is_whole else "number"
    try:
        matcher = checked.compile(Grammar.of("json_schema", schema))
    except InvalidArgument:
        return
    least, most = exactly(low), exactly(high)
    near = {int(bound) + step for bound in (least, most) for step in (-2, -1, 0, 1, 2)}
    for number in near:
        is_in = least < number < most if is_exclusive else least <= number <= most
        if low == LEAST_64 and number < LEAST_64 + 1024:
            is_in = False  # which no model says: it is left out
        assert is_said(matcher, str(number)) == is_in, number


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"const": 9007199254740993}, "const"),
        ({"enum": [1, 1234567890123456789]}, "enum"),
        ({"items": {"anyOf": [{"type": "null"}, {"const": [LEAST_64]}]}}, "items.anyOf.1.const"),
        (
            {"type": "integer", "minimum": 1234567890123456789, "maximum": 1234567890123456799},
            "minimum",
        ),
        ({"$defs": {"a": {"type": "integer", "maximum": 2**64 - 1}}}, "$defs.a.maximum"),
        ({"type": "integer", "minimum": 10**18}, "minimum"),
        ({"type": ["number", "null"], "maximum": 2**53 + 1}, "maximum"),
    ],
)
def test_what_no_double_is_is_refused_with_its_path(
    checked: CheckedCompiler, schema: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidArgument, match="take") as caught:
        checked.compile(Grammar.of("json_schema", schema))
    at = PATH.search(str(caught.value))
    assert at is not None, caught.value
    assert at[1] == path


def test_integers_of_64_bits_are_said(checked: CheckedCompiler) -> None:
    """Up to the greatest; of the least, 1024 are left out, which the library cannot count to."""
    schema = {"type": "integer", "minimum": LEAST_64, "maximum": 2**63 - 1}
    matcher = checked.compile(Grammar.of("json_schema", schema))
    for number in (0, -7, 2**63 - 1, LEAST_64 + 1024, 1234567890123456789):
        assert is_said(matcher, str(number))
    for number in (2**63, LEAST_64 - 1, LEAST_64):
        assert not is_said(matcher, str(number))


@given(texts=some.lists(TEXTS.filter(bool), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None, database=None, derandomize=True)
def test_a_choice_is_said_as_it_is(checked: CheckedCompiler, texts: list[str]) -> None:
    """Control characters and U+007F among them."""
    matcher = checked.compile(Grammar.of("choice", texts))
    assert all(is_said(matcher, text) for text in texts)
    for seed in range(3):
        assert an_output(matcher, random.Random(seed)) in texts  # noqa: S311


def test_a_name_has_one_spelling_beside_a_literal_with_control_characters() -> None:
    schema = {"properties": {"a\x01": {"const": "\x01"}, "b": {}}}
    with pytest.raises(InvalidArgument, match="control characters in a literal and in a property"):
        piece_compiler().compile(Grammar.of("json_schema", schema))


def test_the_literals_of_a_schema_in_lark_are_walked_too(checked: CheckedCompiler) -> None:
    lark = 'start: "a" | b\nb: %json {"properties": {"n": {"const": 9007199254740993}}}'
    with pytest.raises(InvalidArgument, match=r"at 2\(1\): failed .*: at 'properties.n.const'"):
        checked.compile(Grammar.of("lark", lark))


YEARS = (0, 1, 4, 100, 400, 1600, 1900, 1999, 2000, 2023, 2024, 2100, 9996, 9999)


@pytest.mark.parametrize(("form", "behind"), [("date", ""), ("date-time", "T10:00:59Z")])
def test_29_february_is_in_leap_years_only(form: str, behind: str) -> None:
    """Every day of 14 years, and no other, is a date."""
    matcher = piece_compiler().compile(
        Grammar.of("json_schema", {"type": "string", "format": form})
    )
    for year, month, day in product(YEARS, range(14), range(33)):
        is_day = year > 0 and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]
        text = f'"{year:04}-{month:02}-{day:02}{behind}"'
        assert (matcher.num_valid(list(text.encode())) == len(text)) == is_day, text


def test_numbers_that_json_has_not_are_refused() -> None:
    for value in (float("inf"), float("nan")):
        with pytest.raises(InvalidArgument, match="a number beyond those of JSON"):
            Grammar.of("json_schema", {"const": value})
    with suppress(InvalidArgument):
        Grammar.of("json_schema", '{"const": 1e400}')
