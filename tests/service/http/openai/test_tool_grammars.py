"""Grammars of calls in each form: what they let an output say, byte by byte."""

import json
from typing import Any

import pytest

from service.errors import InvalidArgument
from service.families.call_forms import CALL_FORMS
from service.families.marks import marks_in
from service.grammars.form import Grammar
from service.grammars.marks import with_tokens
from service.http.openai.chat_fields import ChatMessage, ChatRequest, Function, Tool
from service.http.openai.tool_calls import Call, CallReader
from service.http.openai.tool_grammars import Callable, grammar_of_calls
from tests.fakes.called import written_calls
from tests.fakes.grammars import piece_compiler

pytest.importorskip("llguidance")
FREE_FORMS = ("hermes", "llama")  # whose text may not begin as JSON does
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
FUNCTIONS = (Callable("f", "add", SCHEMA), Callable("g", "any", None))


def call_in(form: str, arguments: str, name: str = "add") -> str:
    """A call as the form has it, without a marker that is a special token."""
    field = "parameters" if form == "llama" else "arguments"
    call = f'{{"name": "{name}", "{field}": {arguments}}}'
    around = {"hermes": "<tool_call>\n{}\n</tool_call>", "mistral": "[TOOL_CALLS][{}]"}.get(
        form, "{}"
    )
    return around.replace("{}", call)


def is_said(text: str, form: str, *, may_be_text: bool = True, is_single: bool = False) -> bool:
    grammar = grammar_of_calls(form, FUNCTIONS, is_single=is_single, may_be_text=may_be_text)
    matcher = piece_compiler().compile(grammar)
    try:
        for byte in text.encode():
            matcher.take(byte)
    except InvalidArgument:
        return False
    return matcher.is_accepting


@pytest.mark.parametrize("form", FREE_FORMS)
@pytest.mark.parametrize(
    "text", ["", "Hello, {a} [b] < x", "[x] y", " \n 1 + 1", "a [", "<tool", "a\n\nb"]
)
def test_text_without_a_call_is_free(form: str, text: str) -> None:
    assert is_said(text, form)


@pytest.mark.parametrize("form", ["hermes", "llama", "mistral"])
@pytest.mark.parametrize("may_be_text", [True, False])
def test_arguments_of_a_call_keep_to_its_schema(form: str, may_be_text: bool) -> None:
    right, wrong = call_in(form, '{"a": 3}'), call_in(form, '{"b": 3}')
    assert is_said(right, form, may_be_text=may_be_text)
    assert not is_said(wrong, form, may_be_text=may_be_text)
    assert is_said(call_in(form, '{"b": [3]}', "any"), form, may_be_text=may_be_text)
    assert not is_said(call_in(form, '{"a": 3}', "other"), form, may_be_text=may_be_text)
    (call,) = CallReader(form, ["add"]).read(right)
    assert isinstance(call, Call)
    assert call.arguments == '{"a": 3}'


@pytest.mark.parametrize("form", FREE_FORMS)
def test_what_is_read_as_a_call_is_one(form: str) -> None:
    """Behind a marker, and where JSON stands at the beginning of an answer."""
    marker = {"hermes": "<tool_call>", "llama": "<|python_tag|>"}[form]
    assert is_said(call_in("llama" if form == "llama" else "", '{"a": 3}'), form)
    for text in (f"{marker}x", f"hm {marker}\nx", '{"a": 1}', '  {"name"', "[{", '[ {"x": 1}]'):
        assert not is_said(text, form)


def test_hermes_has_calls_and_text_in_turns() -> None:
    call = call_in("hermes", '{"a": 3}')
    for text in (f"First {call} then {call}.", f"{call}\n{call}"):
        assert is_said(text, "hermes")
        assert not is_said(text, "hermes", is_single=True)
    assert is_said(f"First {call}", "hermes", is_single=True)
    assert not is_said(f"{call}\n{call}", "hermes", may_be_text=False, is_single=True)


def test_required_calls_of_bare_forms_are_one_or_several() -> None:
    llama, mistral = call_in("llama", '{"a": 3}'), call_in("mistral", '{"a": 3}')[13:-1]
    assert is_said(f"{llama}; {llama}", "llama", may_be_text=False)
    assert not is_said(f"{llama}; {llama}", "llama", may_be_text=False, is_single=True)
    assert is_said(f"[TOOL_CALLS][{mistral}, {mistral}]", "mistral", may_be_text=False)


def asking(*, is_strict: bool, choice: object = None) -> ChatRequest:
    tool = Tool(Function("add", parameters=SCHEMA, strict=is_strict))
    message = ChatMessage(role="user", content="1 + 1")
    return ChatRequest(model="m", messages=[message], tools=[tool], tool_choice=choice)


def test_only_strict_functions_bound_an_answer_that_may_be_text() -> None:
    assert asking(is_strict=False).call_grammar("hermes") is None
    assert asking(is_strict=True, choice="none").strict_field == ""
    for choice in (None, "auto"):
        assert asking(is_strict=True, choice=choice).call_grammar("hermes") is not None


def test_a_form_whose_text_has_marks_of_its_own_is_kept_to_where_a_call_is_required() -> None:
    """Clients of agents send `strict` with every function, whatever the model."""
    assert asking(is_strict=True).call_grammar("gpt-oss") is None
    assert asking(is_strict=True, choice="required").call_grammar("gpt-oss") is not None


def test_a_function_may_be_described_by_the_word_for_a_schema() -> None:
    """A description that had `%json` was once refused as too large."""
    schema = {**SCHEMA, "description": "Takes %json, as grammars do."}
    grammar = grammar_of_calls("hermes", (Callable("f", "add", schema),), is_single=True)
    matcher = piece_compiler().compile(grammar)
    for byte in call_in("hermes", '{"a": 3}').encode():
        matcher.take(byte)
    assert matcher.is_accepting


TYPED = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": "string"},
        "c": {"enum": ["x", "y"]},
        "d": {"$ref": "#/$defs/list"},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"list": {"type": "array", "items": {"type": "boolean"}}},
}
TOOLS = (Callable("f", "add", TYPED), Callable("g", "now", {"type": "object"}))
NAMES = {each.name: each.parameters or {} for each in TOOLS}
RIGHT = [{"a": 3, "b": "x < y\nz"}, {"a": 3, "b": "", "c": "y", "d": [True]}]


@pytest.mark.parametrize("form", sorted(CALL_FORMS))
@pytest.mark.parametrize("may_be_text", [False, True])
def test_each_form_is_forced_as_its_reader_reads_it(form: str, may_be_text: bool) -> None:
    """What a grammar lets be said, followed where it may go on as the shortest output, is read."""
    if may_be_text and not CALL_FORMS[form].may_follow_text:
        return
    for arguments in RIGHT:
        grammar = grammar_of_calls(form, TOOLS, is_single=False, may_be_text=may_be_text)
        written = forced(grammar, form, arguments)
        calls = CallReader(form, NAMES, schemas=NAMES)
        found = [*calls.read(written), *calls.end()]
        (call,) = [each for each in found if isinstance(each, Call)]
        assert (call.name, call.values) == ("add", arguments)


def forced(grammar: Grammar, form: str, arguments: dict[str, Any]) -> str:
    """One call as the table writes it, taken by the grammar byte by byte."""
    row, keys = CALL_FORMS[form], CALL_FORMS[form].keys
    if row.literals and row.literals.quote:
        return taken(grammar, written_calls(form, [("add", arguments)]))
    if row.literals:
        values = ", ".join(f"{key}={json.dumps(value)}" for key, value in arguments.items())
        return taken(grammar, f"{row.opening}add({values}){row.closing}")
    if not row.is_marked:
        call = json.dumps({row.name_key: "add", row.arguments_key: arguments}, ensure_ascii=False)
    elif keys is None:
        index = ":0" if row.index else ""
        call = f"add{index}{row.named}{json.dumps(arguments, ensure_ascii=False)}"
    else:
        call = f"add{row.named}"
        for key, value in arguments.items():
            is_text = isinstance(value, str)
            close = keys.close if is_text else keys.close_of_others or keys.close
            written = value if is_text else json.dumps(value)
            call += f"{keys.open}{key}{close}{written}{keys.value_close}"
    return taken(grammar, f"{row.opening}{row.before}{call}{row.behind}{row.closing}")


def taken(grammar: Grammar, written: str) -> str:
    """An output that the grammar takes byte by byte."""
    matcher = piece_compiler().compile(grammar)
    for byte in written.encode():
        matcher.take(byte)
    assert matcher.is_accepting, written
    return written


def test_special_tokens_stand_in_place_of_marks() -> None:
    grammar = grammar_of_calls("kimi", TOOLS[1:], is_single=True)
    ids = {"<|tool_call_begin|>": 300, "<|tool_call_argument_begin|>": 301}
    changed = with_tokens(grammar, lambda text: marks_in(text, ids))
    assert ': <[300]> "functions."' in changed.text
    assert ": <[301]>" in changed.text
    assert changed.text.count("\n") == grammar.text.count("\n")
    free = grammar_of_calls("mistral", TOOLS[1:], is_single=True, may_be_text=True)
    changed = with_tokens(free, lambda text: marks_in(text, {"[TOOL_CALLS]": 7}))
    assert "head: TEXT <[7]>" in changed.text


NESTED = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["x", 1, None]},
        "tree": {"$ref": "#/$defs/tree"},
        "either": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "string"}]},
        "any": {},
    },
    "required": ["tree"],
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            },
            "required": ["name"],
        }
    },
}


@pytest.mark.parametrize(
    ("arguments", "is_kept"),
    [
        ({"tree": {"name": "a"}}, True),
        ({"kind": "x", "tree": {"name": "a", "parts": [{"name": "}"}, {"name": ""}]}}, True),
        ({"kind": None, "tree": {"name": "a", "parts": []}, "either": 3, "any": [1, "a"]}, True),
        ({"tree": {"name": "a"}, "either": "b", "any": {"k": {"l": None}}}, True),
        ({"kind": "y", "tree": {"name": "a"}}, False),
        ({"tree": {"name": 1}}, False),
        ({"tree": {"parts": []}}, False),
        ({"tree": {"name": "a"}, "either": 2}, False),
        ({"tree": {"name": "a", "parts": [1]}}, False),
        ({"kind": "x"}, False),
        ({}, False),
    ],
)
def test_gemmas_values_keep_to_a_schema(arguments: dict[str, Any], is_kept: bool) -> None:
    functions = (Callable("f", "add", NESTED),)
    grammar = grammar_of_calls("gemma-4", functions, is_single=True)
    written = written_calls("gemma-4", [("add", arguments)])
    if not is_kept:
        with pytest.raises(InvalidArgument):
            taken(grammar, written)
        return
    taken(grammar, written)
    (call,) = CallReader("gemma-4", ["add"]).read(written)
    assert isinstance(call, Call)
    assert call.values == arguments
