"""`attendant serve FOLDER`: a first start makes an export, and later ones find it."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commands.folders import cost, preparing, room
from commands.folders.adapters import bases_of, by_base
from commands.folders.cache import ENTRY_FILE, MODEL, Cache
from commands.folders.keys import contents_of, key_of
from commands.folders.preparing import Wishes, prepared
from commands.folders.reports import Reports, Steps
from commands.folders.running import PreparationError
from commands.folders.settings import FolderSettings
from commands.folders.sources import Source, parse_source
from commands.folders.worker import MAKERS
from commands.main import app
from loadtests.load.process_tree import tree_of
from models.checkpoints.checkpoint import save_checkpoint
from models.checkpoints.folder_plan import FORMS, REPOSITORY
from models.errors import CheckpointError, OutputError
from service.contract.files import ModelSource, take_snapshot
from service.errors import LoadError
from service.observe.observers import Observers
from service.repository.loading import Openers
from service.repository.repository import ModelRepository
from service.settings import Settings
from tests.commands.folders.test_explain import classifier
from tests.export.test_adapters import said, write_peft
from tests.fakes.hub import COMMIT, fake_hub
from tests.fakes.scalers import Listener
from tests.fakes.tiny_llama import tiny_llama, tiny_llama_generator
from tests.models.checkpoints.gguf.test_networks import of
from tests.models.checkpoints.gguf.writing import write_gguf

ROOT = Path(__file__).parents[3]
PATIENCE_S = 240
MIB = 2**20


class Lines(Reports):
    """Reports that are kept."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    @contextmanager
    def steps(self, name: str, seconds: float) -> Iterator[Steps]:
        yield Steps(self.say, name, seconds)


# What a worker says that it made.
FACTS = {
    "task": "text-classification",
    "precision": "fp32",
    "max_tokens": 9,
    "pooling": "",
    "has_chat_template": False,
    "certificate": "",
}


def wishes(cache: Path, **changes: Any) -> Wishes:
    settings = FolderSettings(folder_cache=cache, **changes)
    return Wishes(settings, {}, "auto", "cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder, and a cache with its export."""
    folder = classifier(tmp_path_factory.mktemp("folders") / "Mine")
    cache = tmp_path_factory.mktemp("cache")
    reports = Lines()
    with prepared([str(folder)], wishes(cache), reports) as (repository, targets):
        manifest = json.loads((repository / "mine" / "1" / "manifest.json").read_text())
        assert (manifest["task"], manifest["precision"]) == ("text-classification", "fp32")
        assert targets == str(next(cache.glob("*/entry.json")).parent.resolve())
    text = "\n".join(reports.lines)
    assert "mine: a folder of transformers, BertForSequenceClassification" in text
    assert re.search(r"[0-9] s (left|so far)\)", text)
    assert "text-classification (--task), fp32 (--precision)" in text
    assert "mine: compared: 200 of 200 texts give the same tokens as transformers" in text
    assert manifest["certificate"]["rows"][0]["equal"] == 200
    assert not list(cache.glob(".*.making"))
    return folder, cache


def test_a_second_start_imports_neither_torch_nor_transformers(made: tuple[Path, Path]) -> None:
    """In a process of its own, in which their import fails; it is served, and answers."""
    folder, cache = made
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from commands.main import main; main()\n"
    )
    ports = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0")
    line = [sys.executable, "-c", program, "serve", f"other={folder}", *ports]
    line += ["--folder-cache", str(cache), "--try-models"]
    served = subprocess.Popen(  # noqa: S603 - our own program
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert served.stdout is not None
    try:
        text = ""
        for printed in served.stdout:
            text += printed
            if printed.startswith("gRPC"):
                break
        assert "other" in text, "it answers its example under the name that was given"
    finally:
        served.send_signal(signal.SIGTERM)
        _, log = served.communicate(timeout=PATIENCE_S)
    assert "other: kept from an earlier start (text-classification (--task)" in log


def test_what_changes_an_export_changes_its_key(made: tuple[Path, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made[0], tmp_path / "copy", dirs_exist_ok=True))
    before = contents_of(folder)
    assert key_of(before, {}) == key_of(contents_of(folder), {})
    assert key_of(before, {}) != key_of(before, {"precision": "int8"})
    os.utime(folder / "config.json")
    assert contents_of(folder) == before, "small files count by what they hold"
    (folder / "config.json").write_text("{}")
    assert contents_of(folder) != before


def test_a_model_repository_is_served_beside_folders(made: tuple[Path, Path]) -> None:
    folder, cache = made
    repository = ROOT / "model_repository"
    if not (repository / "gpt").is_dir():
        pytest.skip("the default models are not made")
    with prepared([str(folder), str(repository)], wishes(cache), Lines()) as (links, targets):
        names = {path.name for path in links.iterdir()}
        assert {"mine", "gpt"} <= names
        assert str(repository.resolve()) in targets.split(":")


def test_two_models_of_one_name_are_refused_before_either_is_made(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    reports = Lines()
    with (
        pytest.raises(CheckpointError, match="two models would be served as 'mine'"),
        prepared([str(made[0]), f"mine={made[0]}"], wishes(tmp_path), reports),
    ):
        pass
    assert reports.lines == []


def test_a_folder_that_is_missing_is_told_before_another_is_made(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    reports = Lines()
    (tmp_path / "empty").mkdir()
    for missing in (tmp_path / "nowhere", made[0] / "config.json", tmp_path / "empty"):
        with (
            pytest.raises(CheckpointError, match=f"{missing}"),
            prepared([str(made[0]), str(missing)], wishes(tmp_path / "cache"), reports),
        ):
            pass
    assert reports.lines == []


def test_a_model_repository_that_is_missing_is_told_before_folders_are_made(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    """Also one whose path looks like a hub id, and one without models."""
    for repository, why in (("some/where", "is not a folder"), (tmp_path, "has no models: leave")):
        line = ["serve", str(made[0]), "--model-repository", str(repository)]
        result = CliRunner().invoke(app, [*line, "--folder-cache", str(tmp_path / "cache")])
        assert f"model repository {repository} {why}" in str(result.exception)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("name", ["a/b", "..", "", ".hidden", "n" * 300, "-x"])
def test_a_name_that_no_model_can_have_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is no name for a model: write NAME=FOLDER"):
        parse_source(f"{name}={tmp_path}")


def test_a_cache_that_cannot_be_written_is_named_with_its_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "cache"):
        with pytest.raises(OutputError, match=r"cannot be kept in .*file.* --folder-cache"):
            Cache(root, MIB).make("k", write_entry(1), lambda: None)


def test_a_folder_that_is_refused_is_refused_as_by_import(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    line = ["serve", str(tmp_path), "--folder-cache", str(tmp_path / "cache")]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 1
    assert "is not a readable file of GGUF" in result.output


def test_a_missing_library_is_said_before_anything_is_made(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "find_spec", lambda _: None)
    with (
        pytest.raises(PreparationError, match=r"needs torch, .*pip install 'attendant\[cpu,train"),
        prepared([str(made[0])], wishes(tmp_path), Lines()),
    ):
        pass


def test_a_full_disk_is_said_before_the_export_begins(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commands.folders.cache.free_disk", lambda _: 1_000)
    with (
        pytest.raises(OutputError, match=r"1\.0 kB are free in .*--folder-cache"),
        prepared([str(made[0])], wishes(tmp_path), Lines()),
    ):
        pass
    with (
        pytest.raises(OutputError, match="--folder-cache-bytes allows 1 bytes"),
        prepared([str(made[0])], wishes(tmp_path, folder_cache_bytes=1), Lines()),
    ):
        pass


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 0),
        (signal.SIGHUP, 0),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_start_that_is_ended_leaves_nothing_half_and_no_process(
    number: signal.Signals, code: int, made: tuple[Path, Path], tmp_path: Path
) -> None:
    """After SIGKILL, which ends the worker too, the next start removes what is left."""
    cache = tmp_path / "cache"
    line = [sys.executable, "-m", "commands", "serve", str(made[0]), "--folder-cache", str(cache)]
    served = subprocess.Popen(  # noqa: S603 - our own program
        line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    deadline_s = time.monotonic() + PATIENCE_S
    workers: list[int] = []
    while not workers and time.monotonic() < deadline_s:
        time.sleep(0.05)
        workers = tree_of(served.pid)[1:]
    served.send_signal(number)
    assert served.wait(PATIENCE_S) == code
    while any(map(is_running, workers)) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not any(map(is_running, workers))
    assert bool(list(cache.glob(".*.making"))) == (number == signal.SIGKILL)
    Cache(cache, MIB).clean()
    assert not list(cache.glob(".*.making"))
    assert not Cache(cache, MIB).entries()


def is_running(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    return status.is_file() and " Z " not in status.read_text()


@pytest.mark.long
def test_a_disk_that_fills_in_the_middle_is_named_and_leaves_nothing(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    """By a limit of 20 kB on each file that is written: the graph is larger."""
    cache = tmp_path / "cache"
    line = f"ulimit -f 20; exec {sys.executable} -m commands serve {made[0]} --folder-cache {cache}"
    ended = subprocess.run(  # noqa: S602 - our own program
        line, shell=True, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S
    )
    assert ended.returncode == 1, ended.stderr
    assert re.search(r"cannot be written: File too large: \S+ kB are needed", ended.stderr)
    assert not list(cache.glob(".*.making"))
    assert not Cache(cache, MIB).entries()


def write_entry(num_bytes: int) -> Any:
    def make(target: Path) -> dict[str, Any]:
        (target / MODEL).mkdir()
        (target / MODEL / "model.onnx").write_bytes(bytes(num_bytes))
        return {"task": "none"}

    return make


def test_the_least_recently_served_exports_are_removed_first(tmp_path: Path) -> None:
    """And none that is open, here or in another process."""
    first = Cache(tmp_path, 3 * MIB)
    for number in range(2):
        first.make(f"k{number}", write_entry(MIB), lambda: None)
    other = Cache(tmp_path, 3 * MIB)
    other.make("k2", write_entry(2 * MIB), lambda: None)
    assert {entry.folder.name for entry in other.entries()} == {"k0", "k1", "k2"}
    for lock in first._open:
        os.close(lock)
    other.make("k3", write_entry(10), lambda: None)
    assert {entry.folder.name for entry in other.entries()} == {"k2", "k3"}


def test_a_failed_export_leaves_no_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path, MIB)

    def fail(target: Path) -> dict[str, Any]:
        (target / "model").mkdir()
        raise OutputError("full")

    with pytest.raises(OutputError, match="full"):
        cache.make("k", fail, lambda: None)
    assert cache.find("k") is None
    assert [path.name for path in tmp_path.iterdir()] == [".k.lock"] or not cache.entries()
    assert not list(tmp_path.glob(".*.making"))


def test_two_starts_at_once_make_an_export_once(tmp_path: Path) -> None:
    """The second waits, and finds what the first has made."""
    program = (
        "import sys, time; from pathlib import Path; from commands.folders.cache import Cache\n"
        "cache = Cache(Path(sys.argv[1]), 10**9)\n"
        "def make(target):\n"
        "    (target / 'model').mkdir(); time.sleep(1); print('made', flush=True); return {}\n"
        "cache.make('k', make, lambda: None)\n"
    )
    line = [sys.executable, "-c", program, str(tmp_path)]
    processes = [
        subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=ROOT)  # noqa: S603
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
    assert "".join(printed).split() == ["made"]
    assert (tmp_path / "k" / ENTRY_FILE).is_file()


def test_refreshing_what_another_server_has_open_is_refused(tmp_path: Path) -> None:
    Cache(tmp_path, MIB).make("k", write_entry(1), lambda: None)
    with pytest.raises(OutputError, match="served by another process"):
        Cache(tmp_path, MIB).forget("k")


def test_a_refresh_that_fails_leaves_no_bytes_that_the_bound_does_not_count(tmp_path: Path) -> None:
    cache = Cache(tmp_path, MIB)
    (tmp_path / "k" / MODEL).mkdir(parents=True)
    (tmp_path / "k" / ENTRY_FILE).write_text("{}")
    cache.forget("k")
    assert not (tmp_path / "k").exists()
    assert not list(tmp_path.glob(".*.making"))
    cache.forget("k")  # of which there is none any more


def test_a_hub_id_is_served_and_found_again_without_the_hub(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is the commit, which the hub's cache has; no worker is needed the second time."""

    def worker(job: dict[str, Any], *_: object) -> dict[str, Any]:
        assert job["folder"].endswith(COMMIT)
        (Path(job["target"]) / MODEL).mkdir()
        return FACTS

    monkeypatch.setattr(preparing, "run_worker", worker)
    home = tmp_path / "home"
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setenv("HF_HOME", str(home))
    reports = Lines()
    with fake_hub("owner/Mine", made[0]) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with prepared(["owner/Mine"], wishes(tmp_path / "cache"), reports) as (links, _):
            assert [path.name for path in links.iterdir()] == ["mine"]
    monkeypatch.setattr(preparing, "run_worker", None)
    with prepared(["owner/Mine"], wishes(tmp_path / "cache", offline=True), reports):
        pass
    assert reports.lines[-1].startswith("mine: kept from an earlier start")


@pytest.mark.parametrize("is_alone", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_an_adapter_is_served_beside_its_base(is_alone: bool, tmp_path: Path) -> None:
    """The base's export has room for the adapter's rank; both are loaded under their names.

    A folder of an adapter that is given alone brings the base that it names.
    """
    base = str(tmp_path / "base")
    network = tiny_llama(num_layers=1, hidden_size=256, intermediate_size=512)
    save_checkpoint(tiny_llama_generator(network), tmp_path / "base")
    write_peft(tmp_path / "Polite", num_in=256)
    settings_file = tmp_path / "Polite/adapter_config.json"
    stated = {**json.loads(settings_file.read_text()), "base_model_name_or_path": base}
    settings_file.write_text(json.dumps(stated))
    adapter = parse_source(f"{tmp_path}/Polite")
    given = [adapter.where] if is_alone else [base]
    wanted = wishes(tmp_path / "cache")
    if not is_alone:
        wanted = replace(wanted, adapters=(adapter,))
    with prepared(given, wanted, Lines()) as (links, targets):
        settings = Settings(model_repository=links, link_targets=targets, kv_cache_bytes=2**22)
        models = ModelRepository(settings, Observers(), Openers())
        try:
            await models.load_all(Listener())
            assert models.failures == {}
            answers = [await said(models, name) for name in ("base", "polite")]
        finally:
            await asyncio.to_thread(models.close, 10)
    assert answers[0] != answers[1]


def test_an_adapter_is_of_the_source_that_it_names_and_others_have_no_room_for_it(
    tmp_path: Path,
) -> None:
    """Beside a classifier, where none is named, it is of the one that continues texts."""
    sources = [parse_source(str(classifier(tmp_path / "classes")))]
    for name in ("one", "two"):
        checkpoint = tiny_llama_generator(tiny_llama(num_layers=1))
        save_checkpoint(checkpoint, tmp_path / name)
        sources.append(parse_source(str(tmp_path / name)))
    write_peft(tmp_path / "polite", num_in=256)
    settings_file = tmp_path / "polite/adapter_config.json"
    adapter = parse_source(str(tmp_path / "polite"))

    def shared_out(stated: str, *given: Source) -> dict[str, tuple[Source, ...]]:
        fields = json.loads(settings_file.read_text())
        settings_file.write_text(json.dumps({**fields, "base_model_name_or_path": stated}))
        return by_base([adapter], given)

    assert shared_out("owner/two", *sources) == {"two": (adapter,)}
    assert shared_out("owner/other", *sources[:2]) == {"one": (adapter,)}
    with pytest.raises(CheckpointError, match=r"may be that \(one, two\): leave all but one"):
        shared_out("owner/other", *sources)
    with pytest.raises(CheckpointError, match="'owner/other': no folder that is served is that"):
        shared_out("owner/other", sources[0])
    shared_out("owner/two", *sources)
    (found,) = bases_of([adapter], [])  # beside the adapter's own folder
    assert Path(found.where) == tmp_path / "two"


def test_an_adapter_alone_whose_base_is_not_here_says_how_to_give_it(tmp_path: Path) -> None:
    write_peft(tmp_path / "polite", num_in=256)
    stated = {"base_model_name_or_path": "/not/here", "r": 2, "target_modules": ["q_proj"]}
    (tmp_path / "polite/adapter_config.json").write_text(json.dumps(stated))
    with (
        pytest.raises(CheckpointError, match=r"its base is '/not/here', .* serve BASE --adapter"),
        prepared([str(tmp_path / "polite")], wishes(tmp_path / "cache"), Lines()),
    ):
        pass


def test_a_model_of_a_repository_is_served_by_its_folder(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    """Under the name that its configuration states, else under any."""
    model = tmp_path / "kept"
    shutil.copytree(next(made[1].glob(f"*/{MODEL}")), model)
    with prepared([str(model)], wishes(tmp_path / "cache"), Lines()) as (links, _):
        assert [path.name for path in links.iterdir()] == ["kept"]
    with (model / "config.pbtxt").open("a") as file:
        file.write('name: "minilm"')
    with prepared([str(model)], wishes(tmp_path / "cache"), Lines()) as (links, _):
        assert [path.name for path in links.iterdir()] == ["minilm"]
    with (
        pytest.raises(CheckpointError, match="names the model 'minilm', and it would be served"),
        prepared([f"other={model}"], wishes(tmp_path / "cache"), Lines()),
    ):
        pass


def test_an_adapter_without_a_base_is_refused() -> None:
    result = CliRunner().invoke(app, ["serve", "--adapter", "a=b"])
    assert result.exit_code == 2
    assert "needs its base: attendant serve BASE" in result.output


def test_links_out_of_a_repository_are_followed_to_named_folders_alone(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    entry = next(made[1].glob(f"*/{ENTRY_FILE}")).parent.resolve()
    (tmp_path / "mine").symlink_to(entry / MODEL, target_is_directory=True)
    with pytest.raises(LoadError, match="is a link out of the model repository"):
        take_snapshot(ModelSource.of(tmp_path, "mine"))
    snapshot = take_snapshot(ModelSource.of(tmp_path, "mine", targets=(entry,)))
    assert "1/model.onnx" in snapshot


def test_the_estimate_is_of_the_right_size() -> None:
    """MiniLM's export in fp32 took 25 s and 1.2 GB at most on two cores."""
    estimate = cost.cost_of(22_700_000, "fp32")
    assert 10 < estimate.seconds < 60
    assert 0.8e9 < estimate.export_memory_bytes < 2e9
    assert cost.default_precision(10**9, has_cuda=False) == "int8"
    assert cost.default_precision(10**6, has_cuda=False) == "fp32"
    assert cost.free_memory() > 0


def test_every_form_that_is_taken_has_a_maker() -> None:
    assert {form.name for form in FORMS} - {REPOSITORY.name} <= MAKERS.keys()


def test_a_file_of_gguf_is_served_and_another_of_its_name_is_another_model(tmp_path: Path) -> None:
    path, reports = tmp_path / "Tiny.gguf", Lines()
    write_gguf(of("llama", head_dim=16), path)
    with prepared([str(path)], wishes(tmp_path / "cache"), reports) as (repository, _):
        assert [model.name for model in repository.iterdir()] == ["tiny"]
    assert "tiny: text-generation (--task), fp32 (--precision)" in "\n".join(reports.lines)
    before = contents_of(path)
    write_gguf(of("llama", head_dim=16, num_hidden_layers=1), path)
    assert contents_of(path) != before
