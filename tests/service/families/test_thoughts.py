"""Thoughts and answers are told apart in every form, wherever pieces of the output end."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.families.thoughts import FORMS, Split, ThoughtReader, Thoughts, form_in


def read(thoughts: Thoughts, pieces: list[str]) -> Split:
    reader = ThoughtReader(thoughts)
    found = [*map(reader.read, pieces), reader.end()]
    return Split("".join(each.thoughts for each in found), "".join(each.text for each in found))


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_output_is_split_at_its_markers_however_it_is_cut(
    name: str, data: st.DataObject
) -> None:
    form = FORMS[name]
    texts = st.text("ab <>[]|/\n", max_size=12).map(str.strip)
    thought, answer = data.draw(texts), data.draw(texts)
    kinds = ["begun", "open", "closed", "plain", "cut"]
    kind = data.draw(st.sampled_from(kinds))
    if form.begin.startswith(answer[:1]) and kind == "plain":
        answer = f"A{answer}"
    written = {
        "begun": f"{form.begin}\n{thought}\n{form.end}\n\n{answer}",
        "open": f"\n{thought}\n{form.end}\n\n{answer}",
        "closed": answer,
        "plain": answer,
        "cut": f"{form.begin}\n{thought}",
    }[kind]
    prompt = {"open": f"[a]{form.begin}\n", "closed": f"[a]{form.begin}\n\n{form.end}\n\n"}
    thoughts = Thoughts.after(form, prompt.get(kind, "[a]"))
    places = st.integers(0, len(written))
    cuts = sorted({0, len(written), *data.draw(st.lists(places, max_size=len(written)))})
    found = read(thoughts, [written[start:end] for start, end in pairwise(cuts)])
    expected = {"closed": Split("", answer), "plain": Split("", answer), "cut": Split(thought, "")}
    assert found == expected.get(kind, Split(thought, answer))


def test_thoughts_are_given_as_they_come() -> None:
    reader = ThoughtReader(Thoughts.after(FORMS["think"], "[a]"))
    assert reader.read("<think>\nI see") == Split("I see", "")
    assert reader.read(" it</thi") == Split(" it", "")
    assert reader.read("nk>\n\nYes") == Split("", "Yes")


def test_an_answer_that_no_thoughts_precede_has_its_marker_taken_away() -> None:
    thoughts = Thoughts.after(FORMS["gpt-oss"], "<|start|>assistant")
    assert read(thoughts, ["<|channel|>final<|message|>Yes"]) == Split("", "Yes")


def test_a_call_ends_thoughts_that_the_model_does_not_end() -> None:
    thoughts = Thoughts.after(FORMS["think"], "<think>\n", call_marks=("<tool_call>",))
    assert read(thoughts, ["I call", " <tool", "_call>{}"]) == Split("I call", "<tool_call>{}")


def test_a_continued_message_is_within_its_own_thoughts() -> None:
    form = FORMS["think"]
    assert Thoughts.after(form, "so", "<think>so").is_open
    assert Thoughts.after(form, "so", "<think>a</think>so").is_closed
    assert Thoughts.after(form, "so", "so").is_closed


@pytest.mark.parametrize("name", FORMS)
def test_a_template_tells_the_form(name: str) -> None:
    form = FORMS[name]
    assert form_in([f"{{% if x %}}{form.begin}{{% endif %}}", "plain"]) == name
    assert form_in(["plain"]) == ""
