"""What a command adds to the refusal of a wrong model: models, versions, and commands."""

from collections.abc import AsyncIterator
from typing import get_args

import pytest
import pytest_asyncio

from commands.ask.remedies import MAX_NAMED
from commands.ask.verbs import VERBS
from service.contract.manifest import TaskName
from tests.fakes.command_line import run
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import FakeSessions, classifier_manifest, text_session, write_model

pytestmark = pytest.mark.asyncio(loop_scope="module")
UNKNOWN = "Request for unknown model: "


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (
            "embed spam a",
            "FAILED_PRECONDITION",
            "model 'spam' does text-classification, it cannot embed: "
            "its task is text-classification, use 'attendant classify'",
        ),
        (
            "generate mini a",
            "FAILED_PRECONDITION",
            "model 'mini' does embedding, it cannot generate: "
            "its task is embedding, use 'attendant embed' or 'attendant similarity'",
        ),
        (
            "classify simple -",
            "FAILED_PRECONDITION",
            "model 'simple' takes tensors, not texts: its task is tensors, use 'attendant infer'",
        ),
        (
            "classify nope a",
            "NOT_FOUND",
            f"{UNKNOWN}'nope' is not found; the models here: deep, mini, simple, spam, strings, "
            "tale; 'attendant models' describes them",
        ),
        (
            "infer nope --input a=[1]",
            "NOT_FOUND",
            f"{UNKNOWN}'nope' is not found; the models here: deep, mini, simple, spam, strings, "
            "tale; 'attendant models' describes them",
        ),
        (
            "classify spam a --version 7",
            "NOT_FOUND",
            f"{UNKNOWN}'spam' version 7 is not found; its versions here: 1",
        ),
    ],
)
async def test_a_refusal_of_a_wrong_model_ends_with_the_way_out(
    served: Served, line: str, code: str, text: str
) -> None:
    result = await run(served, *line.split(), stdin="win\n")
    assert result.exit_code == 1
    assert result.stderr == f"attendant: error: {code}: {text}\n"


async def test_other_refusals_get_no_list_of_models(served: Served) -> None:
    result = await run(served, "classify", "spam", "win", "--top-k", "5")
    assert "INVALID_ARGUMENT: top_k is 5" in result.stderr
    assert "models here" not in result.stderr


@pytest_asyncio.fixture(params=[0, MAX_NAMED + 2], loop_scope="module")
async def crowded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Served, int]]:
    folder = tmp_path_factory.mktemp("models")
    names = [f"m{number:02}" for number in range(request.param)]
    for name in names:
        write_model(folder, name, classifier_manifest())
    makers = {name: lambda: text_session("logits", 3) for name in names}
    async with serving(folder, FakeSessions(**makers)) as running:
        yield running, len(names)


async def test_a_long_list_of_models_is_cut_and_an_empty_one_is_named(
    crowded: tuple[Served, int],
) -> None:
    running, count = crowded
    result = await run(running, "classify", "nope", "a")
    expected = f"m07 and {count - MAX_NAMED} more;" if count else "; the server serves no models\n"
    assert expected in result.stderr


async def test_every_task_has_a_command() -> None:
    tasks = {task for verb in VERBS.values() for task in verb.tasks}
    assert tasks == {*get_args(TaskName), "tensors"}
