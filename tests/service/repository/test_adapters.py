"""Adapters in a repository: models of their own name, on the engine of their base."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from service.calls.sampling import Sampling
from service.contract.adapter import ADAPTER_FILENAME
from service.errors import AttendantError, InvalidArgument, Unavailable
from service.observe.observers import Observers
from service.repository.loading import Openers
from service.repository.repository import ModelRepository
from service.serving.adapted_model import AdaptedModel
from service.serving.generative_model import GenerativeModel
from service.serving.model import Caller
from service.settings import Settings
from tests.fakes.generation import read, until, within_patience
from tests.fakes.scalers import Listener
from tests.fakes.sessions import (
    FakeDecoders,
    generator_manifest,
    greedy_text,
    write_adapter,
    write_model,
)

NUM_CHANGES = 20  # 200 were tried once, with the same outcome
LACKS_BASE = "its base model 'tale' is not served: load it before the adapter"


@pytest.fixture
def folder(repository: Path) -> Path:
    """`tale` generates, `a` and `b` are its adapters; `a` comes before it by name."""
    write_model(repository, "tale", generator_manifest(origin="nowhere"))
    write_adapter(repository, "a", 1)
    write_adapter(repository, "b", 2)
    return repository


@asynccontextmanager
async def repository_of(
    folder: Path, decoders: FakeDecoders | None = None, **settings: object
) -> AsyncIterator[ModelRepository]:
    named: dict[str, object] = {"model_control_mode": "explicit", "load_models": "*"}
    values = Settings(model_repository=folder, **named | settings)  # type: ignore[arg-type]
    models = ModelRepository(values, Observers(), Openers(decoder=decoders or FakeDecoders()))
    try:
        await models.load_all(Listener())
        yield models
    finally:
        models.stop_changing()
        await asyncio.to_thread(models.close, 10)


async def say(models: ModelRepository, name: str, prompt: str = "once") -> str:
    model = models.find(name)
    assert isinstance(model, GenerativeModel)
    params = Sampling(temperature=0.0, max_tokens=8)
    with model.users:
        async with model.generate(prompt, params, Caller(time.monotonic())) as generation:
            (answer,) = await within_patience(read(generation))
    return answer.text


def expected(shift: int, prompt: str = "once") -> str:
    return greedy_text(prompt, 8, shift)


async def index_of(models: ModelRepository) -> dict[str, tuple[str, str]]:
    return {row.name: (row.state, row.reason) for row in await models.index()}


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
async def test_an_adapter_is_served_under_its_own_name(folder: Path, mode: str) -> None:
    async with repository_of(folder, model_control_mode=mode) as models:
        answers = await asyncio.gather(*(say(models, name) for name in ("tale", "a", "b")))
        assert answers == [expected(0), expected(1), expected(2)]
        adapter = models.find("a")
        assert isinstance(adapter, AdaptedModel)
        assert (adapter.interface.parent, adapter.version) == ("tale", 1)
        assert b"base_model" in adapter.interface.shown
        assert await index_of(models) == dict.fromkeys(("a", "b", "tale"), ("READY", ""))


async def test_requests_are_counted_under_the_adapter_s_name(folder: Path) -> None:
    async with repository_of(folder) as models:
        await say(models, "a")
        for name, count in (("a", 1), ("tale", 0)):
            with models.find(name).statistics() as statistics:
                assert statistics.success.count == count
        page = models._host.observers.metrics.page().decode()
        ended = 'attendant_request_success_total{finished_reason="length",model="%s",version="1"} '
        assert ended % "a" + "1.0" in page
        assert ended % "tale" + "0.0" in page


async def test_adapters_come_and_go_while_others_are_answered(folder: Path) -> None:
    """20 times, while two names answer; no place and no model is left over."""
    async with repository_of(folder) as models:
        is_over = asyncio.Event()

        async def keep_asking(name: str, shift: int) -> int:
            count = 0
            while not is_over.is_set():
                assert await say(models, name) == expected(shift)
                count += 1
            return count

        asking = [asyncio.create_task(keep_asking(*each)) for each in (("tale", 0), ("a", 1))]
        for _ in range(NUM_CHANGES):
            await models.unload("b")
            await models.load("b")
        assert await say(models, "b") == expected(2)
        is_over.set()
        assert min(await within_patience(asyncio.gather(*asking))) > 0
        await until(lambda: len(models.engaged()) == 3)
        base = models.find("tale")
        await until(lambda: base.users.count == 0)


async def test_an_unloaded_adapter_answers_what_it_accepted(folder: Path) -> None:
    decoders = FakeDecoders()
    async with repository_of(folder, decoders) as models:
        decoder = decoders["tale"]
        decoder.hold()
        answer = asyncio.create_task(say(models, "a"))
        await asyncio.to_thread(decoder.wait_for_runs, 1)
        adapter = models.find("a")
        assert (adapter._engine.num_running, models.find("b")._engine.num_running) == (1, 0)
        await models.unload("a")
        with pytest.raises(AttendantError, match="'a' has no available versions"):
            models.find("a")
        decoder.release()
        assert await answer == expected(1)
        await until(lambda: adapter not in models.engaged())


async def test_adapters_follow_a_base_that_is_replaced(folder: Path) -> None:
    """What the old base was asked is answered by it, and the next by the new one."""
    decoders = FakeDecoders()
    async with repository_of(folder, decoders) as models:
        old = decoders["tale"]
        old.hold()
        answer = asyncio.create_task(say(models, "a"))
        await asyncio.to_thread(old.wait_for_runs, 1)
        (folder / "tale/1/model.onnx").write_text("other")
        await models.load("tale")
        assert decoders["tale"] is not old
        assert await say(models, "a") == expected(1)
        old.release()
        assert await answer == expected(1)
        await until(lambda: len(models.engaged()) == 3)


async def test_adapters_wait_for_a_base_that_is_unloaded(folder: Path) -> None:
    """They say why they are not served, are no obstacle to readiness, and come back with it."""
    async with repository_of(folder) as models:
        await models.unload("tale")
        with pytest.raises(Unavailable, match=LACKS_BASE):
            models.find("a")
        assert (await index_of(models))["a"] == ("UNAVAILABLE", LACKS_BASE)
        assert models.readiness.is_ready
        assert models.readiness.obstacle_of("a") == LACKS_BASE
        with pytest.raises(InvalidArgument, match=LACKS_BASE):
            await models.load("b")
        await models.unload("b")
        await models.load("tale")
        await until(lambda: models.has("a"))
        assert await say(models, "a") == expected(1)
        assert not models.has("b")


async def test_a_base_in_a_new_form_serves_the_adapters_that_fit(folder: Path) -> None:
    decoders = FakeDecoders()
    async with repository_of(folder, decoders) as models:
        decoders._num_places = 0
        (folder / "tale/1/model.onnx").write_text("other")
        await models.load("tale")
        assert await say(models, "tale") == expected(0)
        with pytest.raises(Unavailable, match="'tale' takes no adapters: `attendant export"):
            models.find("a")


async def test_a_new_version_of_an_adapter_takes_the_place_of_the_old(folder: Path) -> None:
    prompt = "a prompt that is long enough to be kept"
    async with repository_of(folder) as models:
        assert await say(models, "a", prompt) == expected(1, prompt)
        write_adapter(folder, "a", 5, version=2)
        await models.load("a")
        assert await say(models, "a", prompt) == expected(5, prompt)
        write_adapter(folder, "a", 6, version=2)
        await models.load("a")
        assert await say(models, "a", prompt) == expected(6, prompt)


async def test_what_is_no_adapter_of_the_base_is_refused(folder: Path) -> None:
    write_adapter(folder, "of-nothing", base="nothing")
    write_adapter(folder, "of-adapter", base="a")
    write_adapter(folder, "broken")
    (folder / "broken/1" / ADAPTER_FILENAME).write_bytes(b"{}")
    write_adapter(folder, "linked")
    (folder / "linked/1" / ADAPTER_FILENAME).unlink()
    (folder / "linked/1" / ADAPTER_FILENAME).symlink_to("/etc/passwd")
    async with repository_of(folder) as models:
        assert models.failures == {
            "of-nothing": LACKS_BASE.replace("tale", "nothing"),
            "of-adapter": "its base model 'a' is no decoder that takes adapters",
            "broken": "adapter.safetensors: its header has 32123 bytes by its first number, "
            "expected at most 4194304, and no more than the file has",
            "linked": "1/adapter.safetensors is a link out of the model repository, which is not "
            "followed",
        }
        assert await say(models, "b") == expected(2)


async def test_no_more_adapters_are_served_than_the_setting_allows(folder: Path) -> None:
    write_adapter(folder, "c", 3)
    async with repository_of(folder, max_adapters=2) as models:
        assert models.failures == {
            "c": "'tale' has 2 adapters, which is the limit: unload one, or raise --max-adapters"
        }
        await models.load("a")
        await models.unload("b")
        await models.load("c")
        assert await say(models, "c") == expected(3)
