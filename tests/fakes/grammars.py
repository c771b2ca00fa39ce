"""Vocabularies, models with random weights, and grammars of growing oddity with their checks."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import jsonschema
import numpy as np

from service.generation.sequence import Vocabulary
from service.grammars.compiler import GrammarCompiler, GrammarVocabulary
from service.grammars.form import Grammar
from tests.fakes.sessions import FakeDecoder

# Tokens of several bytes, so that forced text has several spellings: a byte each, and these.
PIECES = (
    *('{"', '": ', '", "', '"}', "[[", "]]", ", ", "true", "false", "null", "name", "ab", "abc"),
    *("00", "10", "é", "\u4e2d\u6587", "<tool_call>", "\\u", "e+", "-1", " a", "yes", "no"),
)
BYTES = (*(bytes([value]) for value in range(256)), b"", *(piece.encode() for piece in PIECES))
END = 256
PIECE_VOCABULARY = Vocabulary(BYTES, (END,))
VOCAB_SIZE = len(BYTES) + 7  # the model's is padded, as many are


@cache
def piece_compiler() -> GrammarCompiler:
    return GrammarCompiler(
        GrammarVocabulary(BYTES, PIECE_VOCABULARY.eos_token_ids, VOCAB_SIZE, _longest_pieces)
    )


def _longest_pieces(text: str) -> list[int]:
    ids: list[int] = []
    rest = text.encode()
    while rest:
        fitting = [each for each, piece in enumerate(BYTES) if piece and rest.startswith(piece)]
        ids.append(max(fitting, key=lambda each: len(BYTES[each])))
        rest = rest[len(BYTES[ids[-1]]) :]
    return ids


class RandomDecoder(FakeDecoder):
    """Random logits that depend on the last tokens; its end is likely, and so are closing marks."""

    def __init__(self, seed: int, num_slots: int = 8, max_tokens: int = 1_024) -> None:
        super().__init__(num_slots, max_tokens, VOCAB_SIZE)
        self._seed = seed

    def _logits_after(self, slot: int, row: tuple[int, ...], num_past: int) -> np.ndarray:
        super()._logits_after(slot, row, num_past)
        last = np.array(self.slots[slot][-3:], np.int32).tobytes()
        random = np.random.default_rng((self._seed, crc32(last), len(self.slots[slot]) % 7))
        logits: np.ndarray = random.normal(scale=3.0, size=self.vocab_size).astype(np.float32)
        logits[[END, ord('"'), ord("}"), ord("]")]] += 4.0
        return logits


@dataclass(frozen=True, slots=True)
class Case:
    """A grammar, and what says whether a text is in its language."""

    grammar: Grammar
    is_in: Callable[[str], bool]


TREE = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "minimum": 0, "maximum": 99},
        "next": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
    },
    "required": ["x"],
    "additionalProperties": False,
}


def schema_case(schema: dict[str, Any]) -> Case:
    schema = {**schema, "$defs": {"tree": TREE}}
    checker = jsonschema.Draft202012Validator(schema)

    def is_in(text: str) -> bool:
        return bool(checker.is_valid(json.loads(text)))

    return Case(Grammar.of("json_schema", schema), is_in)


def regex_case(pattern: str) -> Case:
    return Case(
        Grammar.of("regex", pattern),
        lambda text: re.fullmatch(pattern, text, re.DOTALL) is not None,
    )


def choice_case(texts: Sequence[str]) -> Case:
    return Case(Grammar.of("choice", list(texts)), lambda text: text in texts)


def bracket_case(depth: int) -> Case:
    """Balanced brackets around digits, which no regular expression has."""
    lark = f'start: item\nitem: "[" item "]" | "(" item ")" | DIGITS\nDIGITS: /[0-9]{{1,{depth}}}/'
    return Case(Grammar.of("lark", lark), lambda text: _is_balanced(text, depth))


def _is_balanced(text: str, depth: int) -> bool:
    while text[:1] in ("[", "(") and text[-1:] == {"[": "]", "(": ")"}[text[0]]:
        text = text[1:-1]
    return text.isascii() and text.isdigit() and len(text) <= depth


def random_schema(random: np.random.Generator, oddity: int) -> dict[str, Any]:
    """A schema whose depth and keywords grow with `oddity`, from 0."""
    kinds = ["string", "integer", "boolean", "enum"]
    if oddity > 1:
        kinds += ["number", "null", "array", "object", "object"]
    if oddity > 3:
        kinds += ["anyOf", "pattern", "format", "tuple", "const", "bounded", "tree"]
    kind = str(random.choice(kinds))
    low = int(random.integers(-50, 50))
    inner = max(0, oddity - 2)
    made: dict[str, Any] = {"type": kind}
    if kind == "string":
        made["maxLength"] = int(random.integers(1, 9))
        made["minLength"] = int(random.integers(0, 2))
    elif kind in ("integer", "number"):
        made |= {"minimum": low, "maximum": low + int(random.integers(1, 200))}
    elif kind == "bounded":
        made = {"type": "integer", "exclusiveMinimum": low, "maximum": low + 99, "multipleOf": 5}
    elif kind == "enum":
        values = ["red", "grün", 3, None, True, "\u4e2d", 'a"b', "x\\y"]
        made = {"enum": [values[place] for place in random.choice(len(values), 3, replace=False)]}
    elif kind == "const":
        made = {"const": {"a": [1, "b", None]}}
    elif kind == "array":
        made |= {"items": random_schema(random, inner), "maxItems": int(random.integers(1, 4))}
    elif kind == "tuple":
        items = [random_schema(random, inner) for _ in range(2)]
        made = {"type": "array", "prefixItems": items, "items": False, "minItems": 2}
    elif kind == "object":
        made = random_object(random, inner)
    elif kind == "tree":
        made = {"$ref": "#/$defs/tree"}
    elif kind == "anyOf":
        made = {"anyOf": [random_schema(random, inner) for _ in range(2)]}
    elif kind == "pattern":
        patterns = ["^[a-c]{2,4}$", "^(foo|ba+r)?$", "^\\d{3}-\\d{2}$", '^[^"\\\\]{1,5}$']
        made = {"type": "string", "pattern": str(random.choice(patterns))}
    elif kind == "format":
        made = {"type": "string", "format": str(random.choice(["date", "uuid", "ipv4", "time"]))}
    return made


def random_object(random: np.random.Generator, oddity: int) -> dict[str, Any]:
    names = ["name", "größe", "a b", 'q"', "x", "tags"]
    chosen = [names[place] for place in random.choice(len(names), 3, replace=False)]
    return {
        "type": "object",
        "properties": {name: random_schema(random, oddity) for name in chosen},
        "required": [name for name in chosen if random.random() < 0.6],
        "additionalProperties": False,
    }


def cases(count: int, seed: int) -> list[Case]:
    """Grammars of all kinds, odder with their number."""
    random = np.random.default_rng(seed)
    made: list[Case] = []
    patterns = [
        "[a-c]{1,5}",
        "(yes|no)+!",
        "[0-9]{1,3}(\\.[0-9]+)?",
        "[^x]{0,6}x",
        "(a|ab)(c|bcd)d*",
    ]
    for place in range(count):
        kind = place % 8
        if kind == 5:
            made.append(regex_case(patterns[place // 8 % len(patterns)]))
        elif kind == 6:
            made.append(
                choice_case(["yes", "no", "yes and no", "\u4e2d\u6587", 'a"\\b\n'][: 2 + place % 4])
            )
        elif kind == 7:
            made.append(bracket_case(1 + place % 5))
        else:
            made.append(schema_case(random_schema(random, place * 8 // count)))
    return made
