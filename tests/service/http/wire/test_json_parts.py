"""The parts of JSON, counted before it is decoded, beside those of the decoded values."""

import json
import random
import time
from contextlib import suppress
from typing import Any

import pytest

from service.errors import InvalidArgument
from service.http.wire import json_parts
from service.http.wire.json_parts import NUMBERS_PER_PART, at_most, check_json, counted

NO_BOUND = 2**40
TEXTS = ("", 'a"b\\', '[{,"', '\\\\"', "é\U0001f600\n", "[[[", ",")


def _value(generator: random.Random, depth: int) -> Any:
    kind = generator.random()
    if depth == 0 or kind < 0.3:
        return generator.choice([1, 2.5, None, True, *TEXTS])
    count = range(generator.randint(0, 4))
    if kind < 0.65:
        return [_value(generator, depth - 1) for _ in count]
    return {f"{generator.choice(TEXTS)}{n}": _value(generator, depth - 1) for n in count}


def _parts(value: Any, depth: int = 1) -> tuple[int, int, int]:
    """The containers, the texts and the nesting of a value."""
    if not isinstance(value, dict | list):
        return 0, int(isinstance(value, str)), depth - 1
    inner = list(value.values()) if isinstance(value, dict) else value
    found = [_parts(each, depth + 1) for each in inner]
    names = len(value) if isinstance(value, dict) else 0
    containers, texts = (sum(each[place] for each in found) for place in (0, 1))
    return 1 + containers, names + texts, max([depth, *(each[2] for each in found)])


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 64, 2**18])
def test_parts_are_those_of_the_decoded_value(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """However the text is cut into pieces, and whatever is in its strings."""
    monkeypatch.setattr(json_parts, "_PIECE_BYTES", piece_bytes)
    generator = random.Random(piece_bytes)  # noqa: S311 - the same each time
    for _ in range(200):
        value = _value(generator, 4)
        text = json.dumps(value, ensure_ascii=generator.random() < 0.5).encode()
        parts, bound = counted(text, NO_BOUND), at_most(text)
        assert (parts.num_containers, parts.num_texts, parts.depth) == _parts(value), text
        assert bound.count >= parts.count
        assert bound.depth >= parts.depth


@pytest.mark.parametrize("piece_bytes", [1, 3, 16, 100, 2**18])
def test_a_text_of_more_characters_than_allowed_is_refused(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """Wherever it stands, and however the body is cut; files may be as long as they are."""
    monkeypatch.setattr(json_parts, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(json_parts, "_COUNTED_AT_ONCE_BYTES", 0)
    most = 60
    for before, behind in ((b"[", b"]"), (b'["a", {"b": ', b', "c": "d"}]'), (b"[[], ", b"]")):
        fitting = before + b'"' + b"a" * most + b'"' + behind
        check_json(fitting, 100, 9, most)
        long = fitting.replace(b'aa"', b'aaa"')
        with pytest.raises(InvalidArgument, match="a text of 61 characters or more, the server"):
            check_json(long, 100, 9, most)
        check_json(long, 100, 9)


@pytest.mark.parametrize("character", ["a", "\u00e9", "\u4e2d", "\n", '"', "\\", "\x00"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_no_text_within_the_bound_of_characters_is_refused_for_its_bytes(
    monkeypatch: pytest.MonkeyPatch, character: str, is_ascii: bool
) -> None:
    """Whatever its characters take in JSON; six times as many are refused of every kind."""
    monkeypatch.setattr(json_parts, "_COUNTED_AT_ONCE_BYTES", 0)
    check_json(json.dumps([character * 60], ensure_ascii=is_ascii).encode(), 100, 9, 60)
    with pytest.raises(InvalidArgument, match="--max-text-characters"):
        check_json(json.dumps([character * 400], ensure_ascii=is_ascii).encode(), 100, 9, 60)


def test_numbers_count_by_their_commas() -> None:
    assert counted(b"[" + b"1," * 399 + b"1]", NO_BOUND).count == 1 + 399 // NUMBERS_PER_PART


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        (b"[[[]]]", 3),
        (b'{"a": [{"b": 1}]}', 3),
        (b'["[[[["]', 1),
        (b'["\\"[[[[", [1]]', 2),
        (b'["\\\\", [[1]]]', 3),
        (b'[[1, "a]]]]", [2]]]', 3),
        (b'["[[[[', 1),  # a string that does not end
        (b'["[[[[\\', 1),
        (b"]]]][[", 0),
    ],
)
def test_brackets_in_strings_count_for_nothing(body: bytes, depth: int) -> None:
    check_json(body, 100, depth)
    if depth > 1:
        with pytest.raises(InvalidArgument, match=f"nested {depth} deep, expected at most"):
            check_json(body, 100, depth - 1)


@pytest.mark.parametrize("unit", [b"{},", b"[],", b'"",', b'"ab",', b"[1],", b'{"a":1},', b"1,"])
def test_small_things_are_refused_by_their_number_whatever_they_are(unit: bytes) -> None:
    """Those that fit are as many as the bound says, numbers four times as many."""
    per_unit = counted(unit * 400, NO_BOUND).count / 400
    fitting = int(1_000 / per_unit) - 2
    check_json(b"[" + unit * fitting + b"1]", 1_000, 9)
    with pytest.raises(InvalidArgument, match="more than 1000 parts"):
        check_json(b"[" + unit * (fitting + 10) + b"1]", 1_000, 9)


@pytest.mark.parametrize("piece", [b"[", b'"', b'\\"', b'["', b"\\\\", b'"\\', b'[\\"', b"{}"])
def test_no_body_takes_longer_than_its_length(piece: bytes) -> None:
    """A megabyte, which took minutes where each quote was tried as a beginning."""
    for body in (piece * (2**20 // len(piece)), b'"' + piece * (2**20 // len(piece))):
        started_s = time.monotonic()
        counted(body, NO_BOUND)
        with suppress(InvalidArgument):
            check_json(b"[" * 100 + b"," * 100 + body, 10, 10)
        assert time.monotonic() - started_s < 5.0
