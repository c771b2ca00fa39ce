"""`attendant infer`: what it refuses before a request is sent."""

import json

import pytest

from service.errors import InvalidArgument
from tests.fakes.command_line import run
from tests.fakes.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([[1]], "an element of type number, 1, expected strings"),
        ([[None]], "an element of type null, None, expected strings"),
        ([[True]], "an element of type boolean, True, expected strings"),
        ([["a"], {"b": 1}], "an element of type list, ['a'], expected strings"),
        (["a", [1]], "an element of type list, [1], expected strings"),
        ({"a": 1}, "an element of type object, {'a': 1}, expected strings"),
        ([["\ud800"]], "half of a surrogate pair, expected Unicode text"),
    ],
    ids=str,
)
async def test_what_is_no_string_is_refused_by_its_input_and_type(
    served: Served, value: object, reason: str
) -> None:
    given = f"text={json.dumps(value)}"
    with pytest.raises(InvalidArgument) as refusal:
        await run(served, "infer", "spam", "--input", given)
    assert "--input 'text' has" in str(refusal.value)
    assert reason in str(refusal.value)
