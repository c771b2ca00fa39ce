"""What is wrong with a body of JSON, in plain words with the path of the field."""

from typing import Any, Literal

import msgspec
import pytest
from attendant.v1 import generation_pb2 as pb
from google.protobuf.json_format import Parse, ParseError

from service.http.wire.json_faults import Fault, of_message, of_record


class Inner(msgspec.Struct):
    """A record in a list."""

    size: int


class Record(msgspec.Struct):
    """One of each kind of field."""

    name: str
    inner: list[Inner] | None = None
    named: dict[str, float] | None = None
    flag: bool = False
    seen: bool | None = None
    end: Literal["left", "right"] | None = None


@pytest.mark.parametrize(
    ("body", "text", "field"),
    [
        (b"[]", "the body is a list, expected an object", None),
        (b"{}", "name is missing", "name"),
        (b'{"name": null}', "name is null, expected a text", "name"),
        (b'{"name": "", "flag": 1}', "flag is a whole number, expected true or false", "flag"),
        (
            b'{"name": "", "seen": 1}',
            "seen is a whole number, expected true, false or null",
            "seen",
        ),
        (b'{"name": "", "inner": {}}', "inner is an object, expected a list or null", "inner"),
        (b'{"name": "", "inner": [{}]}', "inner[0].size is missing", "inner[0].size"),
        (
            b'{"name": "", "inner": [{"size": 1.5}]}',
            "inner[0].size is a number, expected a whole number",
            "inner[0].size",
        ),
        (
            b'{"name": "", "named": {"a": "b"}}',
            "named[...] is a text, expected a number",
            "named[...]",
        ),
        (b'{"name": "", "end": "up"}', "end is 'up', expected one of left, right", "end"),
    ],
)
def test_a_record_s_fault_names_the_field_and_kinds(
    body: bytes, text: str, field: str | None
) -> None:
    with pytest.raises(msgspec.ValidationError) as failed:
        msgspec.json.decode(body, type=Record)
    assert of_record(failed.value, kind=Record) == Fault(text, field)


def test_the_fault_of_a_part_has_the_path_from_the_body() -> None:
    with pytest.raises(msgspec.ValidationError) as failed:
        msgspec.json.decode(b'{"size": "a"}', type=Inner)
    assert of_record(failed.value, "inputs").field == "inputs.size"


PARAMS = "sampling_params."
WHOLE = "expected a whole number from 0 to 4294967295"


@pytest.mark.parametrize(
    ("body", "text", "field"),
    [
        ('{"foo": 1}', "foo is not known, expected one of model, version, text", "foo"),
        ('{"text": 1}', "text is 1, expected a text", "text"),
        ('{"text": "a", "tokenIds": {}}', "text and tokenIds are given, expected", "tokenIds"),
        ('{"sampling_params": {"max_tokens": "x"}}', f"max_tokens is the text 'x', {WHOLE}", "m"),
        ('{"sampling_params": {"max_tokens": -1}}', f"max_tokens is -1, {WHOLE}", "max_tokens"),
        ('{"sampling_params": {"max_tokens": 1.5}}', f"max_tokens is 1.5, {WHOLE}", "max_tokens"),
        ('{"sampling_params": {"max_tokens": true}}', f"max_tokens is true, {WHOLE}", "max_tokens"),
        ('{"sampling_params": {"stop": "a"}}', "stop is the text 'a', expected a list", "stop"),
        ('{"sampling_params": {"stop": [1]}}', "stop[0] is 1, expected a text", "stop[0]"),
        ('{"sampling_params": {"stop": [null]}}', "stop[0] is null, expected a text", "stop[0]"),
        (
            '{"sampling_params": {"logit_bias": {"a": 1}}}',
            f"logit_bias is the text 'a', {WHOLE}",
            "",
        ),
        ('{"sampling_params": {"logit_bias": {"1": "a"}}}', "logit_bias[1] is the text 'a', e", ""),
        ('{"sampling_params": {"logit_bias": []}}', "logit_bias is a list, expected an obj", "l"),
        ('{"sampling_params": {"ignore_eos": 1}}', "ignore_eos is 1, expected true or fals", "i"),
        ('{"sampling_params": {"temperature": "hot"}}', "temperature is the text 'hot', exp", "t"),
        ('{"sampling_params": {"temperature": 1e999}}', "temperature is too large for its f", "t"),
        ('{"sampling_params": {"foo": 1}}', "foo is not known, expected one of temperature", "foo"),
        ('{"conversation": {"messages": [1]}}', "conversation.messages[0] is 1, expected an", "c"),
        ('{"text": "a", "text": "b"}', "text is given twice, expected once", "text"),
        ('{"text":', "the body is not JSON: expecting value in line 1, column 9", ""),
        ('{"text": "\\ud800"}', "text has a half of a surrogate pair", "text"),
    ],
)
def test_a_message_s_fault_names_the_field_and_the_value(body: str, text: str, field: str) -> None:
    with pytest.raises(ParseError):
        Parse(body.encode(), pb.GenerateRequest())
    descriptor: Any = pb.GenerateRequest.DESCRIPTOR
    fault = of_message(body.encode(), descriptor)
    assert fault is not None
    assert text in fault.text
    if field:
        assert (fault.field or "").removeprefix(PARAMS).startswith(field)
