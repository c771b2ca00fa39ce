"""Calls in texts of each family's form, however a stream cuts them, and texts that are none."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.http.openai.tool_calls import Call, CallReader

SUM = '{"name": "sum", "arguments": {"a": [1, 2], "b": "é}"}}'
NOW = '{"name": "now", "parameters": {}}'
OPEN, SHUT = "<tool_call>", "</tool_call>"
ARGUMENTS = {"a": [1, 2], "b": "é}"}
# The form, what a model writes, its text, and the names of the calls.
WRITTEN = [
    ("hermes", f"<tool_call>\n{SUM}\n</tool_call>", "", ["sum"]),
    ("hermes", f"Sum.\n{OPEN}{SUM}{SHUT}\n{OPEN}{NOW}{SHUT}", "Sum.", ["sum", "now"]),
    ("hermes", f"{SUM}\n{NOW}", "", ["sum", "now"]),
    ("hermes", "a < b, and <tool_", "a < b, and <tool_", []),
    ("hermes", "<tool_call>no JSON</tool_call>", "<tool_call>no JSON</tool_call>", []),
    ("hermes", f'{OPEN}{{"name": "other"}}{SHUT} b', f'{OPEN}{{"name": "other"}}{SHUT} b', []),
    ("hermes", f"a <tool_call>{SUM}</tool_call> b", "ab", ["sum"]),
    ("llama", NOW, "", ["now"]),
    ("llama", f"<|python_tag|>{NOW}; {SUM}", "", ["now", "sum"]),
    ("llama", '{"answer": 42}', '{"answer": 42}', []),
    ("llama", f"I say {NOW}", f"I say {NOW}", []),
    ("mistral", f"[TOOL_CALLS][{SUM}, {NOW}]", "", ["sum", "now"]),
    ("mistral", f" [{SUM}]", "", ["sum"]),
    ("mistral", "[1, 2]", "[1, 2]", []),
    ("mistral", "[1, 2", "[1, 2", []),
    ("llama", "  plain text ", "  plain text ", []),
]  # fmt: skip


def read(form: str, pieces: list[str], *, is_single: bool = False) -> tuple[str, list[Call]]:
    reader = CallReader(form, ("sum", "now"), is_single=is_single)
    found = [each for piece in pieces for each in reader.read(piece)] + reader.end()
    texts = [each for each in found if isinstance(each, str)]
    return "".join(texts), [each for each in found if isinstance(each, Call)]


@pytest.mark.parametrize(("form", "written", "text", "names"), WRITTEN)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_calls_are_read_however_the_text_is_cut(
    form: str, written: str, text: str, names: list[str], data: st.DataObject
) -> None:
    places = st.integers(0, len(written))
    cuts = sorted({0, len(written), *data.draw(st.lists(places, max_size=len(written)))})
    pieces = [written[start:end] for start, end in pairwise(cuts)]
    said, calls = read(form, pieces)
    assert said == text
    assert [call.name for call in calls] == names
    for call in calls:
        assert json.loads(call.arguments) == (ARGUMENTS if call.name == "sum" else {})
    assert len({call.id for call in calls}) == len(calls)


def test_text_is_given_as_soon_as_it_begins_no_call() -> None:
    reader = CallReader("hermes", ("sum",))
    assert reader.read("I think <to") == ["I think"]
    assert reader.read("day> that") == [" <today> that"]


def test_a_call_is_given_as_soon_as_it_is_whole() -> None:
    reader = CallReader("hermes", ("sum", "now"))
    assert reader.read(f"<tool_call>{NOW[:-1]}") == []
    (call,) = reader.read("}")
    assert isinstance(call, Call)
    assert reader.read("</tool_call>") == []


def test_only_the_first_call_where_several_are_not_wanted() -> None:
    _, calls = read("mistral", [f"[{SUM}, {NOW}]"], is_single=True)
    assert [call.name for call in calls] == ["sum"]
    written = f"<tool_call>{NOW}</tool_call><tool_call>{SUM}</tool_call>"
    assert [call.name for call in read("hermes", [written], is_single=True)[1]] == ["now"]


@settings(deadline=None)
@example(text="\r[", form="hermes")
@example(text="a \n<tool_call> {} b", form="hermes")
@example(text=" [TOOL_CALLS] [1] ", form="mistral")
@given(text=st.text(max_size=40), form=st.sampled_from(["hermes", "llama", "mistral"]))
def test_any_text_without_a_call_comes_whole(text: str, form: str) -> None:
    assert read(form, list(text)) == (text, [])
