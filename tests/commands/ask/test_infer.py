"""`attendant infer`: what it refuses before a request is sent."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from commands.main import app
from service.errors import InvalidArgument
from tests.fakes.serving import Served, serving, within_patience, write_models

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    repository = tmp_path_factory.mktemp("model_repository")
    write_models(repository)
    async with serving(repository) as running:
        yield running


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
    command = ["infer", "spam", "--input", given, "--address", served.address]
    invoke = CliRunner().invoke
    with pytest.raises(InvalidArgument) as refusal:
        await within_patience(asyncio.to_thread(invoke, app, command, catch_exceptions=False))
    assert "--input 'text' has" in str(refusal.value)
    assert reason in str(refusal.value)
