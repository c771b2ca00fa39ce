"""Calls in the forms of today's families: written by a template, cut anywhere, and forced."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.families.call_forms import CALL_FORMS, call_form_in
from service.families.thoughts import FORMS as FORMS_OF_THOUGHTS
from service.families.thoughts import ThoughtReader, Thoughts
from service.http.openai.tool_calls import Call, CallReader, Piece
from tests.fakes.called import BEFORE, TEMPLATES, written_calls
from tests.fakes.chats import FOLDER as CHATS

FORMS = sorted(CALL_FORMS)
MARKED = [name for name in FORMS if CALL_FORMS[name].is_marked]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "is_on": {"type": "boolean"},
        "items": {"type": "array", "items": {"type": "string"}},
        "more": {"type": "object"},
        "maybe": {"type": ["string", "null"]},
    },
}
SCHEMAS = {"sum": SCHEMA, "sum_up": SCHEMA, "now": {"type": "object", "properties": {}}}
# Texts that look like other types, and like parts of marks.
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12),
    st.sampled_from(
        ["5", "true", "null", '{"a": 1}', "a < b", "</para", "two\nlines", " a ", "\n"]
    ),
)
WHOLE = st.integers(-999, 999)
VALUES = {
    "text": TEXTS,
    "count": WHOLE,
    "share": st.floats(-9, 9),
    "is_on": st.booleans(),
    "items": st.lists(TEXTS, max_size=2),
    "more": st.dictionaries(st.sampled_from(["k", "é"]), st.one_of(TEXTS, WHOLE), max_size=2),
    "maybe": st.one_of(st.none(), st.sampled_from(["a", "5", ""])),
}
Calls = list[tuple[str, dict[str, Any]]]
# What templates have beside the calls.
SIGNS = {
    "llama": '{{ "ipython" }} "parameters": ',
    "phi-4": "<|tool|>",
    "pythonic": "[func_name1(params_name1=params_value1)]",
}


@st.composite
def call_sets(draw: st.DrawFn, most: int = 3) -> Calls:
    calls: Calls = []
    for _ in range(draw(st.integers(1, most))):
        name = draw(st.sampled_from(sorted(SCHEMAS)))
        keys = draw(st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=3))
        arguments = {key: draw(VALUES[key]) for key in keys} if name != "now" else {}
        calls.append((name, arguments))
    return calls


def read(form: str, pieces: Sequence[str], *, is_cut: bool = False) -> list[Piece]:
    reader = CallReader(form, SCHEMAS, schemas=SCHEMAS)
    found = [each for piece in pieces for each in reader.read(piece)]
    return found + reader.end(is_cut=is_cut)


def calls_in(pieces: Sequence[Piece]) -> Calls:
    return [(each.name, each.values) for each in pieces if isinstance(each, Call)]


def text_in(pieces: Sequence[Piece]) -> str:
    return "".join(each for each in pieces if isinstance(each, str))


def fitting(form: str, calls: Calls) -> Calls:
    """The calls that a form can write: one of a turn, and no mark within a text."""
    return calls[:1] if form == "gpt-oss" else calls


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_calls_written_by_a_template_are_read_at_every_split(
    form: str, data: st.DataObject
) -> None:
    calls = fitting(form, data.draw(call_sets()))
    can_have_text = not CALL_FORMS[form].is_bare
    before = data.draw(st.sampled_from(["", "I add é."])) if can_have_text else ""
    lead = BEFORE.get(form, "") if before else data.draw(st.sampled_from(["", "\n"]))
    output = before + lead + written_calls(form, calls)
    whole = read(form, [output])
    assert calls_in(whole) == calls
    assert text_in(whole).strip() == before
    for place in range(len(output) + 1):
        pieces = read(form, [output[:place], output[place:]])
        assert calls_in(pieces) == calls, (output[:place], output[place:])
        assert text_in(pieces).strip() == before
    assert calls_in(read(form, list(output))) == calls


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_a_cut_call_is_a_part_of_it_and_no_markup(form: str, data: st.DataObject) -> None:
    calls = fitting(form, data.draw(call_sets(2)))
    output = written_calls(form, calls)
    for place in range(1, len(output), 2):
        pieces = read(form, [output[:place]], is_cut=True)
        found = [each for each in pieces if isinstance(each, Call)]
        assert not any(call.is_cut for call in found[:-1])
        for call, (name, arguments) in zip(found, calls, strict=False):
            if call.is_cut:
                assert name.startswith(call.name)
                if CALL_FORMS[form].keys is None:
                    assert json.dumps(arguments, ensure_ascii=False).startswith(call.arguments)
                else:
                    for ending in ("", '"', "}", '"}', '": ""}', ": 0}"):
                        text = call.arguments + ending
                        if call.arguments and _is_part(text, arguments):
                            break
                    else:
                        assert not call.arguments, call.arguments
            else:
                assert (call.name, call.values) == (name, arguments)
        assert CALL_FORMS[form].begin not in text_in(pieces)


def _is_part(text: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a text is an object of some of the arguments, the last text maybe cut."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    *first, last = found or [None]
    if any(found[key] != arguments.get(key) for key in first):
        return False
    return (
        last is None
        or str(arguments[last]).startswith(str(found[last]))
        or (found[last] == arguments[last])
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_what_only_looks_like_a_call_is_text(form: str, other: str) -> None:
    """Calls of functions that are not declared, in its own form and in others."""
    output = written_calls(other, [("unknown", {"text": "a"})])
    for pieces in ([output], list(output)):
        found = read(form, pieces)
        assert not calls_in(found)
        assert text_in(found) == output or "<|call|>" in output
    said = f"So {output} then"
    assert text_in(read(form, list(said))) == said


@pytest.mark.parametrize("form", MARKED)
def test_text_within_marks_that_are_no_call_is_given_at_once(form: str) -> None:
    row = CALL_FORMS[form]
    reader = CallReader(form, SCHEMAS)
    begun = (row.opening or row.before) + ("" if not row.opening else row.before) + "x"
    assert text_in([each for one in begun for each in reader.read(one)]) == begun


@pytest.mark.parametrize("form", MARKED)
def test_a_broken_call_does_not_hide_the_one_behind_it(form: str) -> None:
    if form == "gpt-oss":  # one in a turn
        return
    calls: Calls = [("unknown", {"text": "a"}), ("sum", {"count": 1})]
    assert calls_in(read(form, [written_calls(form, calls)])) == calls[1:]


MARKUP = 2**20  # characters


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize(
    ("form", "written", "end"),
    [
        ("qwen-coder", "<function=sum>\n<parameter=text>\n", ""),
        ("qwen-coder", "<function=sum>\n<parameter=text>\n", "\n</parameter>\nX"),
        ("glm-4.7", "<tool_call>sum<arg_key>text</arg_key><arg_value>", "</arg_value>X"),
        ("gemma", "<start_function_call>call:sum{text:<escape>", "<escape>X"),
        ("lfm2", "<|tool_call_start|>[sum(text='", "'X"),
        ("kimi", "<|tool_call_begin|>functions.sum<|tool_call_argument_begin|>{", ""),
        ("hermes", '<tool_call>{"name": "sum", "arguments": {"a": "', ""),
        ("hermes", "<tool_call>\n", ""),
        ("glm", "<tool_call>sum ", ""),
        ("glm", " " * 999, ""),
    ],
)
def test_an_output_of_marks_without_end_is_read_at_once(
    form: str, written: str, end: str, is_cut: bool
) -> None:
    """Each mark may begin a call that goes on to the end: read again for each, it took minutes."""
    reader = CallReader(form, SCHEMAS, schemas=SCHEMAS)
    output = written * (MARKUP // len(written)) + end
    started = time.process_time()
    pieces = [*reader.read(output), *reader.end(is_cut=is_cut)]
    assert time.process_time() - started < 5
    assert is_cut or text_in(pieces).strip() == output.strip()


def test_types_of_arguments_are_those_of_the_schema() -> None:
    for written, key, value in (
        ("5", "text", "5"),
        ("5", "count", 5),
        ("5", "share", 5),
        ("True", "is_on", True),
        ("null", "maybe", None),
        ("five", "count", "five"),
        ('["a"]', "items", ["a"]),
        ('["a"]', "other", ["a"]),
        ("a b", "other", "a b"),
    ):
        output = (
            f"<tool_call>\n<function=sum>\n<parameter={key}>\n{written}\n</parameter>\n"
            "</function>\n</tool_call>"
        )
        assert calls_in(read("qwen-coder", [output])) == [("sum", {key: value})]


def test_the_id_that_a_form_has_is_given() -> None:
    found = read("kimi", [written_calls("kimi", [("sum", {}), ("now", {})])])
    assert [each.id for each in found if isinstance(each, Call)] == [
        "functions.sum:0",
        "functions.now:1",
    ]


@pytest.mark.parametrize("form", FORMS)
def test_the_form_is_found_from_a_template_that_writes_it(form: str) -> None:
    template = "{% if tools %}" + TEMPLATES[form]
    template += SIGNS.get(form, "")
    assert call_form_in(template) == form
    assert call_form_in(TEMPLATES[form]) == ""


HEADER = " to=functions.sum<|channel|>commentary <|constrain|>json<|message|>"


@pytest.mark.parametrize(
    "before",
    ["", "I add.<|end|><|start|>assistant", "<|end|><|start|>assistant"],
)
@pytest.mark.parametrize("head", [HEADER, HEADER.replace(" <|constrain|>json", " json")])
def test_gpt_oss_may_name_the_function_in_the_header_of_the_role(before: str, head: str) -> None:
    output = f'{before}{head}{{"count": 1}}<|call|>'
    for place in range(len(output) + 1):
        pieces = read("gpt-oss", [output[:place], output[place:]])
        assert calls_in(pieces) == [("sum", {"count": 1})]
        assert text_in(pieces) == before.partition("<")[0]


def test_gpt_oss_may_call_out_of_its_thoughts() -> None:
    marks = CALL_FORMS["gpt-oss"].call_marks
    thoughts = Thoughts.after(FORMS_OF_THOUGHTS["gpt-oss"], "<|start|>assistant", "", marks)
    for head in (
        HEADER,
        "<|channel|>commentary to=functions.sum<|message|>",
        "<|channel|>analysis to=functions.sum code<|message|>",
    ):
        reader = ThoughtReader(thoughts)
        split = reader.read(f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{head}{{}}")
        assert split.thoughts == "Hm."
        assert calls_in(read("gpt-oss", [split.text])) == [("sum", {})]


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("llama_3", "llama"),
        ("qwen_3", "hermes"),
        ("{# <tool_call> arguments #}{% if tools %}{% endif %}", ""),
        ("{% if tools and '<tool_call>' in text %}{{ tools }} arguments{% endif %}", ""),
        ("{% if tools and message.role == 'ipython' %}[func_name1(a=b)]{% endif %}", "pythonic"),
        ("{% if tools or message.role == 'ipython' %}\"parameters\": {% endif %}", ""),
        ("{% if tools %}<|tool_list_start|>{{ tools }}<|tool_list_end|>{% endif %}", "lfm2"),
    ],
)
def test_a_form_that_a_template_only_mentions_is_not_its_own(template: str, form: str) -> None:
    saved = CHATS / f"{template}.jinja" if template.isidentifier() else None
    assert call_form_in(saved.read_text() if saved else template) == form


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("text='it\\'s', count=+1, share=.5", {"text": "it's", "count": 1, "share": 0.5}),
        ("text='it's', is_on=true", {"text": "it's", "is_on": True}),
        ('text="\\u00e9\\n\\ud83d\\ude00\\x41"', {"text": "\xe9\n\U0001f600A"}),
        ("more={'k': [1, None,],}, maybe=null,", {"more": {"k": [1, None]}, "maybe": None}),
        ("items=[]", {"items": []}),
        ("text=x", None),
        ("'text'='x'", None),
        ("1", None),
        ("count=1 2", None),
        ("share=inf", None),
        ("more={'k': " + "[" * 9_999, None),
    ],
)
def test_literals_of_python_are_read_as_models_write_them(
    written: str, arguments: dict[str, Any] | None
) -> None:
    output = f"[sum({written})]"
    for pieces in ([output], list(output)):
        found = read("pythonic", pieces)
        assert calls_in(found) == ([] if arguments is None else [("sum", arguments)])
        assert arguments is not None or text_in(found) == output
