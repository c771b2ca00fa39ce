"""Models come and go while the server serves: nothing that was asked goes unanswered."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.errors import InvalidArgument, LoadError, NotFound, Overloaded, Unavailable
from service.repository.loading import start_model
from service.repository.repository import MAX_LOADS
from service.serving.model import Caller, InferRequest
from tests.fakes.scalers import ALL, Listener, ask, controlled, eventually_rows, rows, write
from tests.fakes.serving import eventually, within_patience


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
    told = Listener()
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


PATHS = (
    *("../evil", "/etc/evil", "1/../../evil", "1//model.onnx", "", ".", "1/.hidden", "1\\x"),
    *("/".join("a" * 20), "1/\0"),
)
NO_CONFIG = "failed to load 'm', config"
# What a client asks to load (a name, a configuration, files by their paths), and the refusal.
REFUSED: list[tuple[tuple[Any, ...], type[Exception], str]] = [
    *(
        (
            ("m", "{}", {path: b"2"}),
            InvalidArgument,
            "is not a plain path inside the model's folder",
        )
        for path in PATHS
    ),
    (
        ("m", "{}", {"A" * 256: b"2"}),
        LoadError,
        "failed to poll from model repository: file path 'AAA",
    ),
    (("m", None, {"1/model.onnx": b"2"}), InvalidArgument, "files are given without parameter"),
    *(((name,), InvalidArgument, "Model name cannot be empty") for name in ("", "  ")),
    *(
        ((name,), InvalidArgument, "must not contain path traversal characters")
        for name in ("../m", "a/b", "..", " ..", "a\0b")
    ),
    (("a" * 300,), InvalidArgument, "model name has 300 bytes, expected at most 255"),
    (("...",), LoadError, "failed to poll from model repository"),  # a hidden folder
    (("m", "{"), LoadError, f"{NO_CONFIG}: Failed to load JSON"),
    (("m", '{"colour": "red"}'), LoadError, f"{NO_CONFIG}: Message type"),
    (("m", '{"name": "other"}'), LoadError, f"{NO_CONFIG}.pbtxt: name is 'other'"),
    (("m", '{"sequence_batching": {}}'), LoadError, f"{NO_CONFIG}.pbtxt: sequence_batching"),
    (("m", "[" * 100_000), LoadError, f"{NO_CONFIG}: "),
]


@pytest.mark.parametrize(("load", "kind", "text"), REFUSED)
async def test_a_name_path_or_configuration_that_is_wrong_changes_nothing(
    repository: Path, load: tuple[Any, ...], kind: type[Exception], text: str
) -> None:
    """Neither leads out of the repository; the model that is served stays as it is."""
    write(repository, "m", 2)
    write(repository, "...", 2)
    async with controlled(repository, load_models="m") as (models, _):
        with pytest.raises(kind) as caught:
            await models.load(*load)
        assert text in str(caught.value)
        assert await ask(models, "m") == 2
        assert models.failures == {}


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
