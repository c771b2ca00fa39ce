"""Values of options: what each rule reads, and what it refuses with the expected values."""

import json

import pytest

from service.contract.option_rules import (
    MAX_JSON,
    MAX_SHOWN,
    SWITCH,
    WORD_SWITCH,
    Read,
    each,
    like,
    one_of,
    properties,
    whole,
)
from service.errors import LoadError

WHOLE, COLOURS, SHAPE = whole(255), one_of("Red", "GREEN"), like(r"\d+x\d+", "a shape")
DEVICES = properties({"CPU": {"STREAMS": WHOLE, "HINT": COLOURS}, "GPU": {}}, "an object")


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        (WHOLE, "0", "0"),
        (WHOLE, "255", "255"),
        (WHOLE, "007", "007"),
        (whole(2**63), str(2**63), str(2**63)),
        (COLOURS, "red", "Red"),
        (COLOURS, "Green", "GREEN"),
        (SHAPE, "2x16", "2x16"),
        (SWITCH, "TRUE", "1"),
        (SWITCH, "0", "0"),
        (WORD_SWITCH, "1", "true"),
        (WORD_SWITCH, "False", "false"),
        (DEVICES, "{}", "{}"),
        (
            DEVICES,
            '{"CPU": {"STREAMS": 2, "HINT": "red"}, "GPU": {}}',
            '{"CPU": {"HINT": "Red", "STREAMS": "2"}}',
        ),
    ],
)
def test_a_value_is_read_as_onnx_runtime_takes_it(rule: Read, value: str, expected: str) -> None:
    assert rule("parameter 'a'", value) == expected


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        *(
            (WHOLE, value, "a whole number of at most 255")
            for value in ("256", "", "abc", "-1", "+1", "1.0", " 1", "\u0663", "0" * 30)
        ),
        (whole(2**63), "0" * 20, f"a whole number of at most {2**63}"),
        (COLOURS, "blue", "one of Red, GREEN"),
        (one_of("a", expected="the first letter"), "b", "the first letter"),
        (SHAPE, "2x16x", "a shape"),
        (SHAPE, "a2x16", "a shape"),
        (SWITCH, "2", "0, 1, false or true"),
        *(
            (DEVICES, value, "an object")
            for value in (
                "",
                "[]",
                "null",
                '"CPU"',
                '{"NPU": {}}',
                '{"CPU": []}',
                '{"CPU": {"PATH": "1"}}',
                '{"CPU": {"STREAMS": [1]}}',
                '{"GPU": {"STREAMS": 1}}',
                "[" * 1_000,
            )
        ),
    ],
)
def test_another_value_is_refused_with_those_that_are_taken(
    rule: Read, value: str, expected: str
) -> None:
    with pytest.raises(LoadError) as refused:
        rule("parameter 'a'", value)
    assert str(refused.value) == (
        f"config.pbtxt: parameter 'a' is '{value[:MAX_SHOWN]}', expected {expected}"
    )


def test_a_property_of_a_device_is_refused_by_its_name() -> None:
    with pytest.raises(LoadError) as refused:
        DEVICES("parameter 'a'", '{"CPU": {"STREAMS": 256}}')
    assert str(refused.value) == (
        "config.pbtxt: parameter 'a': CPU.STREAMS is '256', expected a whole number of at most 255"
    )


def test_an_object_of_properties_is_bounded() -> None:
    text = json.dumps({"CPU": {"STREAMS": 2}})
    longest = text + " " * (MAX_JSON - len(text))
    assert DEVICES("parameter 'a'", longest) == '{"CPU": {"STREAMS": "2"}}'
    with pytest.raises(LoadError, match="expected an object"):
        DEVICES("parameter 'a'", longest + " ")


def test_one_rule_may_be_that_of_several_names() -> None:
    assert each(WHOLE, "one other") == {"one": WHOLE, "other": WHOLE}
