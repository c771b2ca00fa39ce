"""Models come and go while the server serves: nothing that was asked goes unanswered."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.contract.files import ModelSource, take_snapshot
from service.errors import InvalidArgument, LoadError, NotFound, Overloaded, Unavailable
from service.observe.metrics import Metrics
from service.repository.loading import Openers, start_model
from service.repository.repository import MAX_LOADS, ModelRepository
from service.runtime.session import SessionOptions
from service.serving.model import Caller, InferRequest
from service.settings import Settings
from tests.fakes.serving import eventually, within_patience
from tests.fakes.sessions import FakeSession, doubling_session

ALL = "version_policy { all {} }"


class Told:
    """What a listener heard, in order."""

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
    repository: Path, mode: str = "explicit", told: Told | None = None, **settings: object
) -> AsyncIterator[tuple[ModelRepository, Scalers]]:
    scalers = Scalers()
    values = Settings(model_repository=repository, model_control_mode=mode, **settings)  # type: ignore[arg-type]
    models = ModelRepository(values, Metrics(), Openers(scalers))
    await models.load_all(told or Told())
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


async def test_clients_change_nothing_unless_control_is_explicit(repository: Path) -> None:
    write(repository, "m", 2)
    for mode in ("none", "poll"):
        async with controlled(repository, mode) as (models, _):
            for change in (models.load("m"), models.unload("m")):
                with pytest.raises(Unavailable, match="explicit model load / unload is not"):
                    await change
            assert await ask(models, "m") == 2


@pytest.mark.parametrize(
    ("asked", "served"), [("", []), ("a", ["a"]), ("a, b", ["a", "b"]), ("*", ["a", "b", "c"])]
)
async def test_explicit_control_starts_with_the_models_that_are_named(
    repository: Path, asked: str, served: list[str]
) -> None:
    for name in ("a", "b", "c"):
        write(repository, name, 2)
    async with controlled(repository, load_models=asked) as (models, _):
        assert [model.name for model in models.models()] == served
        assert models.readiness.is_ready
        with pytest.raises(NotFound, match="'zz' is not found"):
            models.find("zz")


@pytest.mark.parametrize(
    ("selected", "served"),
    [("", ["a", "b", "c"]), ("*", ["a", "b", "c"]), ("c", ["c"]), ("a, b,a", ["a", "b"])],
)
@pytest.mark.parametrize("mode", ["none", "poll"])
async def test_a_part_of_a_repository_is_served_where_models_are_named(
    repository: Path, mode: str, selected: str, served: list[str]
) -> None:
    """Without explicit control, too; a change of the others goes unseen."""
    for name in ("a", "b", "c"):
        write(repository, name, 2)
    async with controlled(repository, mode, load_models=selected, repository_poll_s=3_600) as (
        models,
        _,
    ):
        assert [model.name for model in models.models()] == served
        assert models.readiness.is_ready
        for name in ("a", "b", "c"):
            write(repository, name, 3)
        for _ in range(2):
            await models.poll_once()
        assert [model.name for model in models.models()] == served
        assert await ask(models, served[0]) == 3


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
async def test_a_name_at_start_that_the_repository_lacks_is_refused(
    repository: Path, mode: str
) -> None:
    write(repository, "a", 2)
    with pytest.raises(LoadError, match="--load-models names 'b', but the repository has a"):
        async with controlled(repository, mode, load_models="a,b"):
            pass


async def test_load_unload_and_load_again(repository: Path) -> None:
    write(repository, "m", 2)
    told = Told()
    async with controlled(repository, told=told) as (models, _):
        assert await rows(models) == [("m", "", "", "")]
        await models.load("m")
        assert await rows(models) == [("m", "1", "READY", "")]
        assert await ask(models, "m") == 2
        await models.unload("m")
        with pytest.raises(NotFound, match="'m' has no available versions"):
            models.find("m")
        with pytest.raises(Unavailable, match="'m' version 1 is not at ready state"):
            models.find("m", "1")
        await eventually_rows(models, [("m", "1", "UNAVAILABLE", "unloaded")])
        assert models.readiness.is_ready
        await models.unload("m")
        await models.unload("never heard of")
        await models.load("m")
        assert await ask(models, "m") == 2
    assert told.models == [("m", True), ("m", False), ("m", True)]


async def eventually_rows(models: ModelRepository, expected: list[tuple[str, ...]]) -> None:
    end_s = time.monotonic() + 20
    while (found := await rows(models)) != expected:
        assert time.monotonic() < end_s, found
        await asyncio.sleep(0.001)


async def test_a_new_version_takes_the_place_of_the_old_which_answers_what_it_was_asked(
    repository: Path,
) -> None:
    write(repository, "m", 2)
    async with controlled(repository, load_models="m", instances=1) as (models, scalers):
        (old,) = scalers.opened
        old.hold()
        running = asyncio.create_task(ask(models, "m"))
        await asyncio.to_thread(old.wait_for_runs, 1)
        waiting = asyncio.create_task(ask(models, "m"))
        write(repository, "m", 3, version=2)
        await within_patience(models.load("m"))
        assert await ask(models, "m") == 3
        assert await rows(models) == [("m", "1", "UNLOADING", ""), ("m", "2", "READY", "")]
        assert not running.done()
        assert not waiting.done()
        old.release()
        assert await running == await waiting == 2
        await eventually_rows(models, [("m", "2", "READY", "")])
        with pytest.raises(NotFound, match="'m' version 1 is not found"):
            models.find("m", "1")


async def test_no_request_is_lost_while_versions_are_swapped_under_load(repository: Path) -> None:
    """20 reloads under requests without pause: each is answered, by a version served then."""
    write(repository, "m", 1)
    async with controlled(repository, load_models="m") as (models, _):
        answers: list[float] = []
        is_over = False

        async def keep_asking() -> None:
            while not is_over:
                answers.append(await ask(models, "m"))

        askers = [asyncio.create_task(keep_asking()) for _ in range(4)]
        for factor in range(2, 22):
            write(repository, "m", factor)
            await models.load("m")
            assert await ask(models, "m") == factor
        is_over = True
        await asyncio.gather(*askers)
        assert set(answers) <= set(range(1, 22))
        assert answers == sorted(answers)


async def test_a_load_that_fails_leaves_the_old_version_serving_and_says_why(
    repository: Path,
) -> None:
    write(repository, "m", 2)
    async with controlled(repository, load_models="m") as (models, _):
        write(repository, "m", "no number", version=2)
        with pytest.raises(InvalidArgument) as caught:
            await models.load("m")
        text = "model.onnx: could not convert string to float: 'no number'"
        assert str(caught.value) == (
            f"load failed for model 'm': version 2 is at UNAVAILABLE state: {text}"
        )
        assert await ask(models, "m") == 2
        assert models.readiness.is_ready
        assert await rows(models) == [("m", "1", "READY", text), ("m", "2", "UNAVAILABLE", text)]
        write(repository, "m", 5, version=2)
        await models.load("m")
        assert await ask(models, "m") == 5
        assert models.failures == {}


async def test_a_first_load_that_fails_makes_the_server_unready_until_it_is_unloaded(
    repository: Path,
) -> None:
    write(repository, "m", "no number")
    async with controlled(repository) as (models, _):
        with pytest.raises(InvalidArgument):
            await models.load("m")
        assert not models.readiness.is_ready
        await models.unload("m")
        assert models.readiness.is_ready


async def test_versions_whose_files_did_not_change_are_not_opened_again(repository: Path) -> None:
    write(repository, "m", 2, config=ALL)
    async with controlled(repository, load_models="m") as (models, scalers):
        first = models.find("m", "1")
        await models.load("m")
        write(repository, "m", 3, version=2)
        await models.load("m")
        assert models.find("m", "1") is first
        assert len(scalers.opened) == 2
        write(repository, "m", 2, config=ALL + " max_batch_size: 4")
        await models.load("m")
        assert models.find("m", "1") is not first
        assert models.find("m").interface.max_batch_size == 4
        assert len(scalers.opened) == 4


async def test_a_configuration_from_a_client_replaces_the_folder_s_until_unload(
    repository: Path,
) -> None:
    write(repository, "m", 2, config="max_batch_size: 8")
    write(repository, "m", 3, version=2)
    async with controlled(repository, load_models="m") as (models, _):
        config = {"version_policy": {"specific": {"versions": [1]}}}
        await models.load("m", json.dumps(config))
        assert models.versions("m") == [1]
        assert models.find("m").interface.max_batch_size == 64  # the graph's, not the folder's
        await models.load("m")
        assert models.versions("m") == [1]
        await models.unload("m")
        await models.load("m")
        assert models.versions("m") == [2]
        assert models.find("m").interface.max_batch_size == 8


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("{", "failed to load 'm', config: Failed to load JSON"),
        ('{"colour": "red"}', "failed to load 'm', config: Message type"),
        ('{"name": "other"}', "failed to load 'm', config.pbtxt: name is 'other'"),
        ('{"sequence_batching": {}}', "failed to load 'm', config.pbtxt: sequence_batching"),
        ("[" * 100_000, "failed to load 'm', config: "),
    ],
)
async def test_a_configuration_that_cannot_be_read_changes_nothing(
    repository: Path, config: str, text: str
) -> None:
    write(repository, "m", 2)
    async with controlled(repository, load_models="m") as (models, _):
        with pytest.raises(LoadError) as caught:
            await models.load("m", config)
        assert str(caught.value).startswith(text)
        assert await ask(models, "m") == 2
        assert models.failures == {}


async def test_files_from_a_client_are_a_model_until_it_is_unloaded(repository: Path) -> None:
    async with controlled(repository) as (models, _):
        await models.load("sent", "{}", {"1/model.onnx": b"4", "7/model.onnx": b"7"})
        assert await ask(models, "sent") == 7
        folder = models._models["sent"].source.folder
        assert folder.is_dir()
        await models.load("sent", "{}", {"1/model.onnx": b"5"})
        assert await ask(models, "sent") == 5
        assert not folder.exists()
        folder = models._models["sent"].source.folder
        await models.unload("sent")
        assert not folder.exists()
        with pytest.raises(LoadError, match="failed to poll from model repository"):
            await models.load("sent")
        assert await asyncio.to_thread(os.listdir, repository) == []


@pytest.mark.parametrize(
    "path",
    [
        *("../evil", "/etc/evil", "1/../../evil", "1//model.onnx", "", ".", "1/.hidden", "1\\x"),
        *("/".join("a" * 20), "1/\0"),
    ],
)
async def test_a_path_from_a_client_cannot_lead_out_of_its_model(
    repository: Path, path: str
) -> None:
    async with controlled(repository) as (models, _):
        with pytest.raises(InvalidArgument, match="is not a plain path inside the model's folder"):
            await models.load("m", "{}", {path: b"2"})
        assert models.failures == {}


async def test_a_path_from_a_client_that_no_file_system_takes_is_refused(repository: Path) -> None:
    async with controlled(repository) as (models, _):
        with pytest.raises(LoadError, match="failed to poll from model repository: file path 'AAA"):
            await models.load("m", "{}", {"A" * 256: b"2"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "Model name cannot be empty"),
        ("  ", "Model name cannot be empty"),
        ("../m", "must not contain path traversal characters"),
        ("a/b", "must not contain path traversal characters"),
        ("..", "must not contain path traversal characters"),
        (" ..", "must not contain path traversal characters"),
        ("a\0b", "must not contain path traversal characters"),
        ("a" * 300, "model name has 300 bytes, expected at most 255"),
    ],
)
async def test_a_name_from_a_client_cannot_lead_out_of_the_repository(
    repository: Path, name: str, text: str
) -> None:
    async with controlled(repository) as (models, _):
        with pytest.raises(InvalidArgument, match=text):
            await models.load(name)


async def test_a_hidden_folder_is_no_model(repository: Path) -> None:
    write(repository, "...", 2)
    async with controlled(repository) as (models, _):
        with pytest.raises(LoadError, match="failed to poll from model repository"):
            await models.load("...")


async def test_files_without_a_configuration_are_refused(repository: Path) -> None:
    async with controlled(repository) as (models, _):
        with pytest.raises(InvalidArgument, match="files are given without parameter 'config'"):
            await models.load("m", None, {"1/model.onnx": b"2"})


async def test_polling_loads_what_is_new_or_changed_once_it_keeps_still(repository: Path) -> None:
    write(repository, "m", 2)
    async with controlled(repository, "poll", repository_poll_s=3_600) as (models, _):
        await models.poll_once()
        write(repository, "m", 3, version=2)
        write(repository, "new", 4)
        await models.poll_once()
        assert await ask(models, "m") == 2
        assert not models.has("new")
        await models.poll_once()
        assert await ask(models, "m") == 3
        assert await ask(models, "new") == 4
        write(repository, "m", "broken", version=3)
        for _ in range(3):
            await models.poll_once()
        assert await ask(models, "m") == 3
        assert list(models.failures) == ["m"]
        for path in ("new/1/model.onnx", "new/1", "new"):
            whole = repository / path
            whole.unlink() if whole.is_file() else whole.rmdir()
        await models.poll_once()
        assert not models.has("new")
        write(repository, "m", 6, version=3)
        for _ in range(2):
            await models.poll_once()
        assert await ask(models, "m") == 6


async def test_polling_goes_on_by_itself_and_survives_a_repository_that_is_away(
    repository: Path,
) -> None:
    write(repository, "m", 2)
    async with controlled(repository, "poll", repository_poll_s=0.1) as (models, _):
        away = repository.with_name("away")
        os.rename(repository, away)
        await asyncio.sleep(0.3)
        assert await ask(models, "m") == 2
        os.rename(away, repository)
        write(repository, "n", 3)
        await eventually(lambda: models.has("n"))


async def test_a_link_out_of_the_repository_is_not_followed(
    repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("2")
    (tmp_path / "elsewhere/1").mkdir(parents=True)
    (tmp_path / "elsewhere/1/model.onnx").write_text("2")
    (repository / "file/1").mkdir(parents=True)
    (repository / "file/1/model.onnx").symlink_to(tmp_path / "secret")
    (repository / "whole").symlink_to(tmp_path / "elsewhere")
    (repository / "version").mkdir()
    (repository / "version/1").symlink_to(tmp_path / "elsewhere/1")
    write(repository, "good", 2)
    (repository / "inside").mkdir()
    (repository / "inside/1").symlink_to("../good/1")
    async with controlled(repository, "none") as (models, _):
        assert [model.name for model in models.models()] == ["good", "inside"]
        assert {name: text.split(" is a link")[0] for name, text in models.failures.items()} == {
            "file": "1/model.onnx",
            "version": "1",
            "whole": ".",
        }
        assert "out of the model repository" in models.failures["file"]


async def test_folders_that_link_to_themselves_end(repository: Path) -> None:
    write(repository, "m", 2)
    (repository / "m/1/again").symlink_to("..")
    async with controlled(repository, "none") as (models, _):
        assert await ask(models, "m") == 2


async def test_a_load_again_is_of_what_was_loaded_last_when_its_turn_comes(
    repository: Path,
) -> None:
    """The files before those are gone by then."""
    write(repository, "another", 2)
    async with controlled(repository) as (models, _):
        await models.load("m", "{}", {"1/model.onnx": b"2"})
        async with models._models["m"].turn:
            newer = asyncio.create_task(models.load("m", "{}", {"1/model.onnx": b"3"}))
            await eventually(lambda: len(models._models["m"].turn._waiters or ()) == 1)
            again = asyncio.create_task(models.load("m"))
            await eventually(lambda: len(models._models["m"].turn._waiters or ()) == 2)
        await asyncio.gather(newer, again)
        assert await ask(models, "m") == 3
        assert not models.failures


async def test_a_link_to_itself_is_reported_and_polling_goes_on(repository: Path) -> None:
    write(repository, "m", 2)
    async with controlled(repository, "poll", repository_poll_s=0.1) as (models, _):
        (repository / "m/1/loop").symlink_to("loop")
        await eventually(lambda: "loop is a broken link" in models.failures.get("m", ""))
        (repository / "m/1/loop").unlink()
        write(repository, "n", 3)
        await eventually(lambda: models.has("n") and not models.failures)


async def test_a_version_that_fails_while_another_loads_is_not_served_again(
    repository: Path,
) -> None:
    """It had not changed, so it would have been kept: found, ready, and closed."""
    write(repository, "m", 2, 1, ALL)
    async with controlled(repository, load_models="m") as (models, scalers):
        first = models.find("m", "1")
        write(repository, "m", 3, 2)

        def fail_meanwhile() -> None:
            models._withdraw(models._models["m"], first)

        scalers.on_open = fail_meanwhile
        with pytest.raises(InvalidArgument, match="version 1, which had not changed, failed"):
            await models.load("m")
        assert not models.has("m", "1")
        assert not models.readiness.is_ready
        scalers.on_open = None
        await models.load("m")
        assert [await ask(models, "m", version) for version in ("1", "2")] == [2, 3]
        assert models.readiness.is_ready


async def test_a_client_that_leaves_does_not_undo_a_load(repository: Path) -> None:
    write(repository, "m", 2)
    async with controlled(repository) as (models, _):
        load = asyncio.create_task(models.load("m"))
        await asyncio.sleep(0)
        load.cancel()
        await eventually(lambda: models.has("m"))


async def test_loads_that_clients_left_are_bounded(repository: Path) -> None:
    """Each goes on, and holds the files that were sent: they may not pile up."""
    write(repository, "m", 2)
    async with controlled(repository) as (models, _):
        loads = [asyncio.create_task(models.load("m")) for _ in range(MAX_LOADS)]
        await asyncio.sleep(0)
        for load in loads:
            load.cancel()
        await asyncio.wait(loads)
        with pytest.raises(Overloaded, match="maximum of 64 loads"):
            await models.load("m")
        await eventually(lambda: not models._num_asked)
        await models.load("m")


async def test_a_closing_repository_changes_no_more(repository: Path) -> None:
    write(repository, "m", 2)
    async with controlled(repository) as (models, _):
        models.stop_changing()
        with pytest.raises(Unavailable, match="Server exiting"):
            await models.load("m")


async def test_a_version_written_otherwise_is_no_version(repository: Path) -> None:
    """`01` and `1` would be one number, and the digits of other scripts too."""
    write(repository, "m", 2)
    for name in ("01", "²", "٣", "-1", "0"):
        (repository / "m" / name).mkdir()
    async with controlled(repository, "none") as (models, _):
        assert models.versions("m") == [1]


def test_a_file_that_vanishes_or_is_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LoadError, match="pipe is neither a file nor a folder"):
        take_snapshot(ModelSource("m", tmp_path, tmp_path))


async def test_names_that_were_unloaded_make_room_for_others(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.repository.repository.MAX_MODELS", 2)
    for name in ("a", "b", "c", "d"):
        write(repository, name, 2)
    async with controlled(repository, load_models="a,b") as (models, _):
        with pytest.raises(InvalidArgument, match="2 models are served, which is the limit"):
            await models.load("c")
        await models.unload("a")
        await eventually(lambda: models._models["a"].is_forgettable)
        await models.load("c")
        assert [model.name for model in models.models()] == ["b", "c"]
        with pytest.raises(NotFound, match="'a' is not found"):
            models.find("a")


async def test_names_that_no_message_can_carry_are_no_models(repository: Path) -> None:
    write(repository, "m", 2)
    os.mkdir(os.fsencode(repository) + b"/\xff")
    async with controlled(repository, "none") as (models, _):
        assert await rows(models) == [("m", "1", "READY", "")]


async def test_a_version_that_cannot_be_started_takes_those_before_it_along(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No threads are left for the second of two: the first is closed, and what served serves."""
    write(repository, "m", 2, config=ALL)
    async with controlled(repository, load_models="m") as (models, _):
        started: list[Any] = []

        def start(*arguments: Any) -> Any:
            if started:
                raise RuntimeError("can't start new thread")
            started.append(start_model(*arguments))
            return started[0]

        monkeypatch.setattr("service.repository.repository.start_model", start)
        for version in (2, 3):
            write(repository, "m", version, version=version)
        with pytest.raises(InvalidArgument, match="can't start new thread"):
            await models.load("m")
        assert models.versions("m") == [1]
        await eventually(lambda: not models._models["m"].retiring)
        request = InferRequest({"x": np.ones((1, 1), np.float32)}, 1, Caller(time.monotonic()))
        with pytest.raises(Unavailable):
            await started[0].infer(request)
