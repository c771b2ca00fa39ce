"""Folders of models that change while the server serves, and names and links that are no models."""

import asyncio
import logging
import os
import shutil
from pathlib import Path

import pytest

from service.contract.files import ModelSource, take_snapshot, why_no_model
from service.errors import AttendantError, LoadError
from service.repository.repository import CHANGING
from tests.fakes.scalers import ask, controlled, eventually_rows, rows, write
from tests.fakes.serving import eventually


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


async def test_a_link_to_itself_is_reported_and_polling_goes_on(repository: Path) -> None:
    write(repository, "m", 2)
    async with controlled(repository, "poll", repository_poll_s=0.1) as (models, _):
        (repository / "m/1/loop").symlink_to("loop")
        await eventually(lambda: "loop is a broken link" in models.failures.get("m", ""))
        (repository / "m/1/loop").unlink()
        write(repository, "n", 3)
        await eventually(lambda: models.has("n") and not models.failures)


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


async def test_names_that_no_message_can_carry_are_no_models(repository: Path) -> None:
    write(repository, "m", 2)
    os.mkdir(os.fsencode(repository) + b"/\xff")
    async with controlled(repository, "none") as (models, _):
        assert await rows(models) == [("m", "1", "READY", "")]


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


NO_MODELS = {
    "lost+found": (),
    "notes": ("README.md",),
    "empty": (),
    "old": ("v1/model.bin", "01/weights.bin"),
    ".git": ("config",),
}


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
async def test_folders_that_are_no_models_are_passed_over(
    mode: str, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Volumes have a `lost+found` that only root may read; the server is ready all the same."""
    write(repository, "m", 2)
    for name, files in NO_MODELS.items():
        (repository / name).mkdir()
        for file in files:
            (repository / name / file).parent.mkdir(exist_ok=True)
            (repository / name / file).write_text("no model")
    (repository / "lost+found").chmod(0)
    with caplog.at_level(logging.INFO):
        async with controlled(repository, mode, load_models="*", repository_poll_s=3_600) as found:
            models, _ = found
            if mode == "poll":
                for _ in range(3):
                    await models.poll_once()
            assert await rows(models) == [("m", "1", "READY", "")]
            assert not models.readiness.obstacle
            assert not models.failures
    (repository / "lost+found").chmod(0o700)
    lines = [each.getMessage() for each in caplog.records if "passed over" in each.msg]
    assert sorted(line.split("'")[1] for line in lines) == sorted({*NO_MODELS} - {".git"})


async def test_a_folder_that_cannot_be_read_is_passed_over(repository: Path) -> None:
    """Under root every folder can be read: the walk over one fails here as it does for others."""
    write(repository, "m", 2)
    (repository / "locked").mkdir()
    assert "neither config.pbtxt nor a folder of a version" in why_no_model(repository / "locked")
    assert "cannot be read (No such file" in why_no_model(repository / "gone")


@pytest.mark.parametrize(
    "content", ["config.pbtxt", "manifest.json", "model.onnx", "3/notes.txt", "one/model.onnx"]
)
async def test_a_folder_with_part_of_a_model_is_a_model_that_fails(
    content: str, repository: Path
) -> None:
    """It would be a model but for a mistake, which is told instead of passed over."""
    file = repository / "m" / content
    file.parent.mkdir(parents=True)
    file.write_text("")
    async with controlled(repository, "none") as (models, _):
        assert list(models.failures) == ["m"]
        assert models.readiness.obstacle


async def test_a_served_model_whose_folder_is_emptied_is_served_on(repository: Path) -> None:
    write(repository, "m", 2)
    async with controlled(repository, "poll", repository_poll_s=3_600) as (models, _):
        (repository / "m/1/model.onnx").unlink()
        (repository / "m/1").rmdir()
        for _ in range(3):
            await models.poll_once()
        assert await ask(models, "m") == 2
        ((_, _, state, reason),) = await rows(models)
        assert state == "READY"
        assert "no version folder to serve" in reason


async def test_a_removed_model_leaves_the_index(repository: Path) -> None:
    write(repository, "m", 2)
    write(repository, "broken", "broken")
    async with controlled(repository, "poll", repository_poll_s=3_600) as (models, _):
        assert [row[0] for row in await rows(models)] == ["broken", "m"]
        for name in ("m", "broken"):
            shutil.rmtree(repository / name)
        await models.poll_once()
        await eventually_rows(models, [])
        write(repository, "m", 3)
        for _ in range(2):
            await models.poll_once()
        assert await rows(models) == [("m", "1", "READY", "")]


async def test_an_unloaded_model_leaves_the_index_with_its_folder(repository: Path) -> None:
    write(repository, "m", 2)
    async with controlled(repository) as (models, _):
        await models.load("m")
        shutil.rmtree(repository / "m")
        assert await rows(models) == [("m", "1", "READY", "")]
        await models.unload("m")
        await eventually_rows(models, [])


async def test_the_index_says_why_a_changed_model_is_not_loaded(repository: Path) -> None:
    """While its folder changes, when it cannot be loaded, and no more once it can."""
    write(repository, "m", 2)
    async with controlled(repository, "poll", repository_poll_s=3_600) as (models, _):
        await models.poll_once()
        write(repository, "m", 33)
        await models.poll_once()
        assert await rows(models) == [("m", "1", "READY", CHANGING)]
        write(repository, "m", "broken")
        for _ in range(2):
            await models.poll_once()
        ((_, _, state, reason),) = await rows(models)
        assert (state, reason) == ("READY", models.failures["m"])
        write(repository, "m", 444)
        for _ in range(2):
            await models.poll_once()
        assert await rows(models) == [("m", "1", "READY", "")]
        assert await ask(models, "m") == 444


async def test_the_index_says_that_a_served_model_could_not_be_loaded_again(
    repository: Path,
) -> None:
    write(repository, "m", 2)
    async with controlled(repository) as (models, _):
        await models.load("m")
        shutil.rmtree(repository / "m")
        with pytest.raises(AttendantError):
            await models.load("m")
        reason = "its folder is no longer in the repository"
        assert await rows(models) == [("m", "1", "READY", reason)]


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
