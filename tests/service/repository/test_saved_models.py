"""Models that an earlier version exported still load, and answer as they did.

The files in `tests/saved/repository` are never written again. Numbers in answers are compared with
a tolerance: another processor rounds in its own way.
"""

import asyncio
import json
import re
from pathlib import Path

import pytest

import tests
from commands.ask.trials import try_models
from service.app import App
from service.settings import Settings
from tests.fakes.sessions import PATIENCE_S

SAVED = Path(tests.__file__).parent / "saved"
EXPECTED: dict[str, str] = json.loads((SAVED / "expected.json").read_text())["answers"]
NUMBER = re.compile(r"-?\d+\.\d+")


def parts(answer: str) -> tuple[list[str], list[float]]:
    """What stands between the numbers of an answer, and these."""
    return NUMBER.split(answer), [float(number) for number in NUMBER.findall(answer)]


async def test_every_model_that_was_exported_before_loads_and_answers_as_it_did() -> None:
    """Those that take a text are asked their own example."""
    repository = SAVED / "repository"
    app = App(
        Settings(
            model_repository=repository, grpc_port=0, http_port=-1, metrics_port=0, measure_cost_s=0
        )
    )
    await app.start()
    try:
        address = f"127.0.0.1:{app.grpc_port}"
        trials = await asyncio.to_thread(lambda: list(try_models(address, PATIENCE_S)))
        ready = {path.name for path in repository.iterdir() if app.repository.find(path.name)}
    finally:
        await app.stop()
    assert ready == {path.name for path in repository.iterdir()}
    answers = {trial.model.name: trial.answer for trial in trials}
    assert answers.keys() == EXPECTED.keys()
    for name, expected in EXPECTED.items():
        text, numbers = parts(answers[name])
        assert text == parts(expected)[0], name
        assert numbers == pytest.approx(parts(expected)[1], abs=2e-3), name
