"""Calls with the faults that models write, in each form: good ones are read, no text is lost."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.families.call_forms import CALL_FORMS
from service.http.openai.tool_calls import Call, CallReader, Piece

NAMES = ("sum", "sum_up", "now")
MARKERS = {
    name: (form.begin, form.end)
    for name, form in CALL_FORMS.items()
    if name in ("hermes", "llama", "mistral")
}
FORMS = sorted(MARKERS)
TEXTS = ["I add.", "Then, [see](http://x) ", "a < b; c", "é\n\n1. 中", "[x] {y}", "it's <tool"]
ARGUMENTS = ["{}", '{"a": [1, {"b": "}é]"}]}', '{"a":"<tool_call>{\\"name\\"\\n", "b": 1e2}', "{ }"]
# Objects that are no calls, and end where their brackets do.
BROKEN = [
    "{'name': 'sum', 'arguments': {'a': 1}}",
    '{"name": "other", "arguments": {"a": [1, "}"]}}',
    '{"name": "summer", "arguments": {}}',
    '{"nome": "sum", "arguments": {}}',
    '{"name": "sum", "arguments": [11]}',
    '{"name": "sum", "arguments": 3}',
    '{"name": "sum", "arguments": "no JSON"}',
    '{"name": "sum", "arguments": "[1]"}',
    '{"name": "sum", "arguments": {"a": NaN}}',
    '{"name": "sum", "arguments": {"a": True}}',
    '{"name": "sum", "arguments": {"a": 1,}}',
    '{"name": "sum", "arguments": {"a" 1}}',
    '{"name": "sum", "arguments": {"a": "\\x"}}',
    '{"name": sum, "arguments": {}}',
    '{"name": null, "arguments": {}}',
    "{name: sum}",
    "{}",
]  # fmt: skip
# What other families write. Nothing of it is a call in these forms, so all of it is text.
FOREIGN = [
    "<function=sum>\n<parameter=a>\n1\n</parameter>\n</function>",
    "[sum(a=1), now()]",
    "sum\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>",
    "<\uff5ctool\u2581calls\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>sum\n```json\n{}\n```",
    '<|channel|>commentary to=functions.sum <|message|>{"a": 1}<|call|>',
    '<start_function_call>call:sum{a:1}<end_function_call>',
    "[Title](http://x) is a link.",
    "[1, 2]",
    "{",
    "```json\n[]\n```",
]  # fmt: skip


@dataclass(frozen=True)
class Written:
    """What a model wrote, the text and the calls in it."""

    output: str
    text: str  # without spaces
    calls: list[tuple[str, str]]


def read(
    form: str, pieces: Sequence[str], *, is_cut: bool = False, is_required: bool = False
) -> list[Piece]:
    reader = CallReader(form, NAMES, is_required=is_required)
    found = [each for piece in pieces for each in reader.read(piece)]
    return found + reader.end(is_cut=is_cut)


def text_in(pieces: list[Piece]) -> str:
    return "".join(each for each in pieces if isinstance(each, str))


def calls_in(pieces: list[Piece]) -> list[tuple[str, str]]:
    return [(each.name, each.arguments) for each in pieces if isinstance(each, Call)]


def solid(text: str) -> str:
    return re.sub(r"\s", "", text)


def spelled(name: str, arguments: str, way: int, key: str) -> tuple[str, str]:
    """A call in one of the ways of models, and its arguments."""
    space = " " if way % 2 else "\n"
    if way < 4:
        value = arguments
    elif way < 6:
        value = json.dumps(arguments)  # JSON within JSON
    else:
        arguments, value = "{}", ["null", '""', '"null"'][way % 3]
    head, tail = f'"name":{space}"{name}"', f'"{key}":{space}{value}'
    if way == 9:
        return f'{{"type": "function", {head}}}', arguments
    parts = [tail, head] if way in (1, 5) else [head, tail]
    return f"{{{space}{f',{space}'.join(parts)}{space}}}", arguments


@st.composite
def outputs(draw: st.DrawFn, form: str, *, has_faults: bool = True) -> Written:
    """Calls and objects that are none, with texts around them where the form has them."""
    begin, end = MARKERS[form]
    blocks, texts, calls = [], [], []
    for _ in range(draw(st.integers(1, 4))):
        if has_faults and draw(st.booleans()):
            blocks.append((draw(st.sampled_from(BROKEN)), False))
        else:
            name, way = draw(st.sampled_from(NAMES)), draw(st.integers(0, 9))
            key = draw(st.sampled_from(["arguments", "parameters"]))
            written, arguments = spelled(name, draw(st.sampled_from(ARGUMENTS)), way, key)
            calls.append((name, arguments))
            blocks.append((written, True))
    if form == "hermes":
        output = ""
        for block, is_call in blocks:
            said = draw(st.sampled_from(["", *TEXTS]))
            marked = f"{begin}\n{block}\n{end}"
            output += said + marked + "\n"
            texts.append(said + ("" if is_call else marked))
        return Written(output, solid("".join(texts)), calls)
    is_list = form == "mistral"
    said = draw(st.sampled_from(["", *TEXTS]))
    opening = begin if said else draw(st.sampled_from(["", begin]))
    output = said + opening + ("[" if is_list else "")
    between = ", " if is_list else "; "
    texts = [said]
    for place, (block, is_call) in enumerate(blocks):
        output += (between if place else "") + block
        if not is_call:
            before = "" if not place else between
            texts.append((output[len(said) : -len(block)] if not place else before) + block)
    output += "]" if is_list else ""
    if is_list and not blocks[-1][1]:
        texts.append("]")
    # Of two objects that are no calls, the separator between them is text too.
    return Written(output, solid("".join(texts)), calls)


def comparable(text: str) -> str:
    """Separators before a call go with it, so only what is no separator is compared."""
    return re.sub(r"[;,\s]", "", text)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_broken_block_loses_neither_good_calls_nor_text(form: str, data: st.DataObject) -> None:
    written = data.draw(outputs(form))
    pieces = read(form, [written.output])
    assert calls_in(pieces) == written.calls
    assert comparable(text_in(pieces)) == comparable(written.text)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_stream_has_the_text_and_the_calls_of_the_whole(form: str, data: st.DataObject) -> None:
    """Cut once at each place, at all places, and at any places."""
    written = data.draw(outputs(form)).output + data.draw(st.sampled_from(["", *FOREIGN]))
    whole = read(form, [written])
    places = st.lists(st.integers(0, len(written)), max_size=8)
    cuts = sorted({0, len(written), *data.draw(places)})
    for pieces in (
        list(written),
        [written[start:end] for start, end in pairwise(cuts)],
        *([written[:place], written[place:]] for place in range(0, len(written), 3)),
    ):
        streamed = read(form, pieces)
        assert text_in(streamed) == text_in(whole)
        assert calls_in(streamed) == calls_in(whole)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_required", [False, True])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_call_that_is_cut_is_a_part_of_it_and_no_markup(
    form: str, is_required: bool, data: st.DataObject
) -> None:
    written = data.draw(outputs(form, has_faults=False))
    begin, end = MARKERS[form]
    for place in range(len(written.output)):
        cut = written.output[:place]
        pieces = read(form, [cut], is_cut=True, is_required=is_required)
        calls = [each for each in pieces if isinstance(each, Call)]
        assert not any(call.is_cut for call in calls[:-1])
        assert begin not in text_in(pieces)
        assert not end or end not in text_in(pieces)
        for call, (name, arguments) in zip(calls, written.calls, strict=False):
            if call.is_cut:
                assert name.startswith(call.name)
                assert arguments.startswith(call.arguments)
            else:
                assert (call.name, call.arguments) == (name, arguments)
        said = text_in(pieces)
        assert not (is_required and said and not written.text)
        streamed = read(form, [*cut], is_cut=True, is_required=is_required)
        assert (text_in(streamed), calls_in(streamed)) == (said, calls_in(pieces))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", [*FOREIGN, *TEXTS, *BROKEN, "[", "", " \n"])
def test_what_other_families_write_is_text_as_it_is(form: str, text: str) -> None:
    for written in (text, f"So: {text}", f"{text} then"):
        assert text_in(read(form, [written])) == written
        assert text_in(read(form, list(written))) == written
    begin, end = MARKERS[form]
    marked = f"{begin}{text}{end}"
    assert text_in(read(form, [marked])) == marked


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("beginning", "is_marked"),
    [
        ("[Ti", False),
        ("[1", False),
        ("{x", False),
        ("{'", False),
        ("[{'", False),
        ('{"an', False),
        ('{"name": "o', False),
        ('{"name": "now", "arguments": [1', False),
        ('{"name": "now", "description', False),
        ("n", True),
        ('{"name": 1', True),
        ('{"name": "n", ', True),
        ('{"name": "now", "arguments": 1', True),
    ],
)
def test_what_cannot_become_a_call_is_text_at_once(
    form: str, beginning: str, is_marked: bool
) -> None:
    reader = CallReader(form, NAMES)
    beginning = MARKERS[form][0] + beginning if is_marked else beginning
    pieces = [each for character in beginning for each in reader.read(character)]
    assert "".join(map(str, pieces)) == beginning.rstrip()
    assert reader.read("x y") == ["x y"] or beginning.endswith(" ")


def test_arguments_are_given_as_they_are_written() -> None:
    """Numbers keep their digits, and what no encoder of texts takes is escaped."""
    for arguments in (
        '{"a": 12345678901234567890123}',
        '{"a": 1.10}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
    ):
        written = f'{{"name": "now", "arguments": {arguments}}}'
        assert calls_in(read("hermes", [written])) == [("now", arguments)]
    within = json.dumps('{"a": "\\ud800"}').replace("\\\\u", "\\u")
    for written in (within, '{"a": "two\nlines"}'):
        ((_, arguments),) = calls_in(read("hermes", [f'{{"name": "now", "arguments": {written}}}']))
        assert msgspec.json.encode(arguments)
        assert json.loads(arguments)["a"] in ("\ud800", "two\nlines")


def test_the_name_of_a_cut_call_is_completed_where_one_function_begins_so() -> None:
    for written, name in (
        ("<tool_call>", ""),
        ('<tool_call>{"name": "', ""),
        ('<tool_call>{"name": "su', "su"),
        ('<tool_call>{"name": "sum_', "sum_up"),
        ('<tool_call>{"name": "sum", ', "sum"),
    ):
        assert calls_in(read("hermes", [written], is_cut=True)) == [(name, "")]


def test_arguments_that_are_nested_without_end_are_text() -> None:
    written = '{"name": "now", "arguments": ' + '{"a":' * 100_000
    assert text_in(read("hermes", [written])) == written
