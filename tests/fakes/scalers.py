"""A model repository whose graphs are numbers in files, and a client that changes its models."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from service.errors import LoadError
from service.observe.observers import Observers
from service.repository.loading import Openers
from service.repository.repository import ModelRepository
from service.runtime.session import SessionOptions
from service.serving.model import Caller, InferRequest
from service.settings import Settings
from tests.fakes.serving import within_patience
from tests.fakes.sessions import FakeSession, doubling_session

ALL = "version_policy { all {} }"


class Listener:
    """Keeps the models that began or ended to be served, in order."""

    def __init__(self) -> None:
        self.models: list[tuple[str, bool]] = []

    def __call__(self, name: str, *, is_serving: bool) -> None:
        self.models.append((name, is_serving))


class Scalers:
    """A graph is a number in a file: its session multiplies by it. Other files are broken."""

    def __init__(self) -> None:
        self.opened: list[FakeSession] = []
        self.is_held = False  # sessions opened from now on hold their runs
        self.on_open: Callable[[], None] | None = None  # called on the loop before the next opens
        self.loop = asyncio.get_running_loop()

    def __call__(self, path: Path, options: SessionOptions) -> FakeSession:
        if self.on_open is not None:
            self.loop.call_soon_threadsafe(self.on_open)
        try:
            factor = float(path.read_text())
        except ValueError as error:
            raise LoadError(f"{path.name}: {error}") from error
        session = doubling_session()
        session.compute = lambda inputs: {"y": inputs["x"] * factor}
        if self.is_held:
            session.hold()
        self.opened.append(session)
        return session


def write(repository: Path, name: str, factor: object, version: int = 1, config: str = "") -> None:
    folder = repository / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    if config:
        (repository / name / "config.pbtxt").write_text(config)
    (folder / "model.onnx").write_text(str(factor))


@asynccontextmanager
async def controlled(
    repository: Path, mode: str = "explicit", told: Listener | None = None, **settings: object
) -> AsyncIterator[tuple[ModelRepository, Scalers]]:
    scalers = Scalers()
    values = Settings(model_repository=repository, model_control_mode=mode, **settings)  # type: ignore[arg-type]
    models = ModelRepository(values, Observers(), Openers(scalers))
    await models.load_all(told or Listener())
    try:
        yield models, scalers
    finally:
        models.stop_changing()
        for session in scalers.opened:
            session.release()
        await asyncio.to_thread(models.close, 10)


async def ask(models: ModelRepository, name: str, version: str = "") -> float:
    """What the model makes of 1."""
    model = models.find(name, version)
    with model.users:
        one = np.ones((1, 1), np.float32)
        reply = await within_patience(
            model.infer(InferRequest({"x": one}, 1, Caller(time.monotonic())))
        )
        return float(reply.outputs["y"][0, 0])


async def rows(models: ModelRepository) -> list[tuple[str, str, str, str]]:
    return [(row.name, row.version, row.state, row.reason) for row in await models.index()]


async def eventually_rows(models: ModelRepository, expected: list[tuple[str, ...]]) -> None:
    end_s = time.monotonic() + 20
    while (found := await rows(models)) != expected:
        assert time.monotonic() < end_s, found
        await asyncio.sleep(0.001)
