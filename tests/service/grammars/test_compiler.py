"""The library behind grammars: what it refuses, and that hostile grammars cost bounded time."""

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import jsonschema
import numpy as np
import pytest

from service.errors import InvalidArgument
from service.grammars.compiler import GrammarCompiler, GrammarMatcher, GrammarVocabulary
from service.grammars.form import Grammar
from tests.fakes.grammars import BYTES, VOCAB_SIZE, piece_compiler

pytest.importorskip("llguidance")
MOST_STEP_S = 2.0  # far above what a step takes, as machines of tests are busy
LETTERS = "abcdefghij"


def either(*kinds: str) -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "object", "properties": {kind: {}}, "required": [kind]} for kind in kinds
        ]
    }


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("json_schema", {"not": {"type": "string"}}, 'Unimplemented keys: ["not"]'),
        ("json_schema", {"type": "array", "uniqueItems": True}, "uniqueItems"),
        ("json_schema", {"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
        ("json_schema", {"$ref": "http://example.com/a"}, "not present"),
        ("json_schema", {"enum": []}, "Unsatisfiable"),
        ("json_schema", {"$ref": "#"}, "cannot be kept to"),
        ("regex", "(a", "unclosed group"),
        ("regex", "a(?=b)", "look-around"),
        ("lark", 'begin: "a"', "start"),
        ("lark", "start: start", "cannot be kept to"),
    ],
)
def test_what_cannot_be_kept_to_is_refused_with_the_reason(
    kind: str, value: object, text: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        piece_compiler().compile(Grammar.of(kind, value))
    assert caught.value.field == kind
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"a": {"type": "integer"}}}, '{"\\u0061": "x"}'),
        ({"properties": {"a": False}}, '{"\\u0061": 1}'),
        ({"patternProperties": {"^a": {"type": "integer"}}}, '{"\\u0061": "x"}'),
        ({"required": ["a"], "minProperties": 2}, '{"a": 1, "a": 2}'),
        ({"required": ["a"], "minProperties": 2}, '{"a": 1, "\\u0061": 2}'),
    ],
)
def test_a_property_s_name_has_one_spelling(schema: dict[str, Any], text: str) -> None:
    """Else a property would escape its schema, or one would count twice."""
    matcher = piece_compiler().compile(Grammar.of("json_schema", {"type": "object", **schema}))
    assert matcher.num_valid(list(text.encode())) < len(text)


@pytest.mark.parametrize("low", [-3.5, -3, -1, -0.5, 0, 0.25, 0.5, 3, 12])
@pytest.mark.parametrize("width", [0.01, 0.5, 1, 1.5, 20])
def test_numbers_keep_to_their_bounds(low: float, width: float) -> None:
    """Around each bound, written with and without a fraction; some bounds are refused."""
    high = low + width
    near = [bound + step for bound in (low, high) for step in (-1, -0.1, -0.001, 0, 0.001, 0.1, 1)]
    texts = {f"{value:.{digits}f}" for value in near for digits in range(4)}
    for lower, upper in product(("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        schema = {"type": "number", lower: low, upper: high}
        try:
            matcher = piece_compiler().compile(Grammar.of("json_schema", schema))
        except InvalidArgument as error:
            assert "take a bound with a fraction" in str(error)  # noqa: PT017 - it may be raised
            continue
        for text in texts:
            if is_said(matcher.copy(), text):
                jsonschema.validate(json.loads(text), schema)


def one(schema: object) -> dict[str, Any]:
    """An object with this property only."""
    inner = {"properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return {"type": "object", **inner}


Bounds = dict[str, Any]
MEETINGS: dict[str, tuple[Callable[[Bounds, Bounds], dict[str, Any]], str]] = {
    "one reference": (lambda a, b: {"$defs": {"a": a}, "$ref": "#/$defs/a", **b}, "{}"),
    "two references": (
        lambda a, b: {
            "$defs": {"a": a, "b": b},
            "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        },
        "{}",
    ),
    "alternatives": (lambda a, b: {**a, "anyOf": [{"type": "null"}, b]}, "{}"),
    "properties": (lambda a, b: {"allOf": [one(a), one(b)]}, '{{"a": {}}}'),
    "other properties": (
        lambda a, b: {**one(a), "allOf": [{"additionalProperties": b}]},
        '{{"a": {}}}',
    ),
    "items": (lambda a, b: {"type": "array", "items": a, "allOf": [{"items": b}]}, "[{}]"),
    "first items": (
        lambda a, b: {"type": "array", "prefixItems": [a], "allOf": [{"items": b}]},
        "[{}]",
    ),
}


@pytest.mark.parametrize("low", [-3, -0.5, 0, 3])
@pytest.mark.parametrize("width", [0.5, 1, 3])
@pytest.mark.parametrize("meeting", MEETINGS)
def test_numbers_keep_to_bounds_that_meet(low: float, width: float, meeting: str) -> None:
    """Where they are refused, the library would say the bound; nothing is refused without need."""
    high = low + width
    texts = {f"{low + step:.{digits}f}" for step in (-0.5, 0, 0.25, 0.5) for digits in range(3)}
    texts |= {f"{high + step:.{digits}f}" for step in (-0.5, 0, 0.5) for digits in range(3)}
    form, written = MEETINGS[meeting]
    for lower, upper in product(("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        schema = form({"type": "number", lower: low}, {"type": "number", upper: high})
        text = json.dumps(schema)
        matcher = piece_compiler().compile(Grammar("json_schema", text))  # without the checks
        said = [
            json.loads(each)
            for number in texts
            if is_said(matcher.copy(), each := written.format(number))
        ]
        wrong = [
            value for value in said if not jsonschema.Draft202012Validator(schema).is_valid(value)
        ]
        try:
            Grammar.of("json_schema", schema)
        except InvalidArgument as error:
            assert "take a bound with a fraction" in str(error)  # noqa: PT017 - it may be raised
            assert wrong
        else:
            assert not wrong


def is_said(matcher: GrammarMatcher, text: str) -> bool:
    """Whether this is a whole output."""
    if matcher.num_valid(list(text.encode())) < len(text):
        return False
    for byte in text.encode():
        matcher.take(byte)
    return matcher.is_accepting


def test_a_character_that_json_writes_as_an_escape_is_in_strings() -> None:
    matcher = piece_compiler().compile(Grammar.of("json_schema", {"type": "string"}))
    text = '"\\n\\t\\b\\f\\r\\"\\\\/é"'.encode()
    assert matcher.num_valid(list(text)) == len(text)


HOSTILE: dict[str, tuple[str, Any]] = {
    "products": ("json_schema", {"allOf": [either(*(f"{x}{y}" for x in "abc")) for y in LETTERS]}),
    "many properties": (
        "json_schema",
        {"type": "object", "properties": {f"p{each}": {"type": "integer"} for each in range(900)}},
    ),
    "huge bounds": ("json_schema", {"type": "array", "minItems": 10**6, "maxItems": 10**9}),
    "long strings": ("json_schema", {"type": "string", "minLength": 10**9}),
    "repetitions": ("regex", "(((.{1,1000}){1,1000}){1,1000})"),
    "nested stars": ("regex", "((a*)*b|((a{1,100}){1,100}){1,100})+"),
    "far back": ("regex", "(.*a.{20})+"),
    "ambiguous": ("lark", 'start: a\na: a a | "x" | '),
    "branches": (
        "lark",
        "start: " + " | ".join(f"/[a-z]*{each}[a-z]{{30}}/ start" for each in LETTERS) + ' | "x"',
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_grammar_is_refused_or_its_steps_are_short(name: str) -> None:
    compiler = piece_compiler()
    started_s = time.thread_time()
    try:
        matcher = compiler.compile(Grammar.of(*HOSTILE[name]))
        assert time.thread_time() - started_s < MOST_STEP_S
        walk(matcher, 60, random.Random(1))  # noqa: S311
    except InvalidArgument:
        assert time.thread_time() - started_s < 60 * MOST_STEP_S


def ids_of(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist())


def walk(matcher: GrammarMatcher, num_tokens: int, choices: random.Random) -> bytes:
    """A text of at most this many tokens; no mask is empty. Raises `InvalidArgument`."""
    text = b""
    for _ in range(num_tokens):
        started_s = time.thread_time()
        allowed = matcher.forced[:1] or ids_of(matcher.mask)
        assert time.thread_time() - started_s < MOST_STEP_S
        assert allowed, "a mask is empty without an error"
        textual = [token_id for token_id in allowed if BYTES[token_id]]
        if not textual:
            assert matcher.is_accepting
            break
        token_id = choices.choice(textual)
        matcher.take(token_id)
        text += BYTES[token_id]
        if matcher.is_complete:
            break
    return text


def test_grammars_at_random_raise_nothing_else_and_leave_others_alone() -> None:
    """Lark, patterns and schemas put together of parts, most of them wrong."""
    choices = random.Random(0)  # noqa: S311
    parts = [
        *(
            'start: "a"\n',
            "start: x y | z\n",
            "x: /[a-z]+/",
            "y: x | ",
            "%json {}",
            "%json",
            "%regex",
        ),
        *(
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            "*",
            "+",
            "?",
            "\\",
            "|",
            "&",
            "~",
            "é",
            "\0",
            "a{9999}",
            ".",
        ),
        *("<[1]>", "<[0-99999999999]>", "[max_tokens=0]", "%ignore", "@x", "%import", "-> a", '"'),
    ]
    keywords = ["type", "items", "anyOf", "allOf", "enum", "pattern", "$ref", "minimum", "required"]
    values = ["object", "array", "x", "#", "^(", 1e308, -1, None, True, [], {}, ["a"], [{}], "\0"]
    kept = piece_compiler().compile(Grammar.of("regex", "ab*c"))
    for _ in range(80):
        kind = choices.choice(("lark", "regex", "json_schema"))
        value: object = "".join(choices.choices(parts, k=choices.randint(1, 8)))
        if kind == "json_schema":
            value = {choices.choice(keywords): choices.choice(values) for _ in range(3)}
        with suppress(InvalidArgument):
            walk(piece_compiler().compile(Grammar.of(kind, value)), 8, choices)
    assert walk(kept, 9, choices).startswith(b"a")


def test_a_tokenizer_that_puts_spaces_before_words_spells_forced_text_without() -> None:
    """What it gives is taken where its bytes are the text's, else the longest tokens that fit."""

    def encode(text: str) -> list[int]:
        return [ord(" "), *text.encode()]

    vocabulary = GrammarVocabulary(BYTES, (256,), VOCAB_SIZE, encode)
    matcher = GrammarCompiler(vocabulary).compile(Grammar.of("regex", "abc!{3}"))
    assert bytes(matcher.forced) == b"abc!!!"[: len(matcher.forced)]
    assert matcher.forced


def test_masks_that_take_too_long_end_their_sequence() -> None:
    matcher = piece_compiler().compile(Grammar.of("regex", "[a-z]*"))
    matcher._left_s = -1.0
    with pytest.raises(InvalidArgument, match="regex cannot be kept to: its masks take too long"):
        matcher.take(ord("a"))


@pytest.mark.parametrize(
    "expression", ["[ab]((a{999}){999}){999}", "b?(ab){999999}", "[a-z].{9999}"]
)
def test_a_text_that_must_be_said_later_is_bounded_too(expression: str) -> None:
    """Of 10^9 characters, fewer than 131,072 are followed, and the step after them is an error."""
    matcher = piece_compiler().compile(Grammar.of("regex", expression))
    matcher.take(ord("a"))
    with suppress(InvalidArgument):
        assert len(matcher.forced) < 2**17
        _ = matcher.mask


def test_a_grammar_that_failed_or_grew_is_to_be_compiled_anew() -> None:
    matcher = piece_compiler().compile(Grammar.of("regex", "[a-z]*"))
    assert not matcher.wear.is_out
    copy = matcher.copy()
    copy.wear.add(0.0005)
    assert matcher.wear.slow_s == 0.0, "a step of half a millisecond adds nothing"
    copy.wear.add(0.3)
    assert matcher.wear.is_out
    assert matcher.wear.num_bytes > 30_000_000
    failed = piece_compiler().compile(Grammar.of("regex", "[a-z]*"))
    with pytest.raises(InvalidArgument):
        failed.copy().take(ord("!"))
    assert failed.wear.is_out


@pytest.mark.parametrize(
    ("expression", "text", "is_said_so"),
    [
        (r"\d{3}-\d{4}", "123-4567", True),
        (r"\d{3}-\d{4}", "4\U0001fbf21-\U0001fbf401\U0001fbf5", False),
        (r"\d", "\u0661", False),
        (r"\D", "\u0661", True),
        (r"[^\d]", "\u0661", True),
        (r"\w", "\u00e9", False),
        (r"[\w-]", "-", True),
        (r"\W", "\u00e9", True),
        (r"\s", "\u00a0", False),
        (r"\s", "\t", True),
        (r"[\s\S]", "\u00a0", True),
        (r"\\d", "\\d", True),
    ],
)
@pytest.mark.parametrize("kind", ["regex", "lark", "json_schema"])
def test_classes_of_characters_are_ascii(
    kind: str, expression: str, text: str, is_said_so: bool
) -> None:
    """As in ECMA 262, whichever form has them; a digit of another script is no digit."""
    value: object = expression
    if kind == "lark":
        value = f'start: "/#\\\\d" /{expression}/ // no /\\d/ here'
        text = f"/#\\d{text}"
    if kind == "json_schema":
        value, text = (
            {"type": "string", "pattern": f"^{expression}$"},
            json.dumps(text, ensure_ascii=False),
        )
    assert is_said(piece_compiler().compile(Grammar.of(kind, value)), text) == is_said_so


def test_borders_of_words_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="lookarounds not supported"):
        piece_compiler().compile(Grammar.of("regex", r"a\bb"))
