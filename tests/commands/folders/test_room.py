"""What a first start needs is checked before anything is fetched or made."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from commands.folders import cost, preparing, room
from commands.folders.cache import MODEL, Cache
from commands.folders.fetching import Progress, showing_progress
from commands.folders.preparing import prepared
from commands.folders.running import PreparationError
from commands.folders.sources import parse_source
from commands.main import app
from export.graphs.cached_decoder import trace_decoder
from export.graphs.files import num_bytes
from export.precision.blockwise import quantize_blocks
from export.precision.per_token import quantize_rows
from models.checkpoints.folder_plan import GGUF, TRANSFORMERS, Plan
from models.checkpoints.headers import read_headers
from models.checkpoints.plan import num_in_tables, recognise
from models.errors import CheckpointError, OutputError
from tests.commands.folders.test_explain import WIDE, classifier
from tests.commands.folders.test_preparing import FACTS, Lines, wishes
from tests.fakes.hub import FakeHub, fake_hub
from tests.fakes.tiny_llama import tiny_llama

ID, WEIGHTS = "owner/Mine", "model.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of transformers; not to be changed."""
    return classifier(tmp_path_factory.mktemp("hub") / "Mine")


@pytest.fixture
def hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """That has the folder as `ID`; its cache is empty."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    with fake_hub(ID, folder) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def refused(tmp_path: Path, error: type[Exception], match: str) -> list[str]:
    """The lines of a start that is refused."""
    reports = Lines()
    with (
        pytest.raises(error, match=match),
        prepared([ID], wishes(tmp_path / "cache"), reports),
    ):
        pass
    assert not list((tmp_path / "cache").glob("*/entry.json"))
    return reports.lines


def test_a_hub_id_is_explained_without_its_weights(hub: FakeHub, folder: Path) -> None:
    """With sizes, numbers of weights and what an import would make of it, as of the folder."""
    documents: list[dict[str, Any]] = []
    for source in (ID, str(folder)):
        result = CliRunner().invoke(app, ["explain", source, "--json"], env=WIDE)
        assert result.exit_code == 0, result.output
        documents.append(json.loads(result.stdout))
    by_id, by_folder = documents
    assert WEIGHTS not in hub.fetched
    for field in ("details", "num_weights", "num_bytes", "stored_as", "taken", "cost", "name"):
        assert by_id[field] == by_folder[field], field
    assert by_id["folder"] == ID
    assert by_id["download_bytes"] == (folder / WEIGHTS).stat().st_size
    assert by_folder["download_bytes"] == 0
    page = CliRunner().invoke(app, ["explain", ID], env=WIDE).stdout
    assert " to fetch, about " in page


def test_a_model_that_does_not_fit_the_memory_is_refused_before_it_is_fetched(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a precision that fits, where there is one."""
    monkeypatch.setattr(room, "free_memory", lambda: 100_000)
    lines = refused(
        tmp_path, PreparationError, r"100\.0 kB are free: serve it on a machine with more"
    )
    assert "to fetch; the export takes about" in lines[0]
    monkeypatch.setattr(cost, "SERVER_BYTES", 0)
    small = cost.ExportTarget("int4-weights").cost(recognise(hub.folder))
    monkeypatch.setattr(room, "free_memory", lambda: small.serve_memory_bytes)
    refused(tmp_path, PreparationError, r"are free: --precision int4-weights takes about")
    assert WEIGHTS not in hub.fetched


def test_what_does_not_fit_the_hubs_disk_is_refused_before_it_is_fetched(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "free_disk", lambda _: 1_000)
    refused(tmp_path, OutputError, r"to fetch, and 1\.0 kB are free .*HF_HOME")
    assert WEIGHTS not in hub.fetched


def test_a_network_that_no_import_reads_is_refused_before_it_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the message has the id, not the place of its outline."""
    strange = classifier(tmp_path / "Strange")
    config = json.loads((strange / "config.json").read_text())
    (strange / "config.json").write_text(json.dumps({**config, "model_type": "strange"}))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    with fake_hub("owner/Strange", strange) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        with (
            pytest.raises(CheckpointError, match=r"^owner/Strange.*strange"),
            prepared(["owner/Strange"], wishes(tmp_path / "cache"), Lines()),
        ):
            pass
        assert WEIGHTS not in hub.fetched


def test_files_that_are_fetched_are_told_where_there_is_no_terminal(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worker(job: dict[str, Any], *_: object) -> dict[str, Any]:
        (Path(job["target"]) / MODEL).mkdir()
        return FACTS

    monkeypatch.setattr(preparing, "run_worker", worker)
    reports = Lines()
    with prepared([ID], wishes(tmp_path / "cache"), reports):
        pass
    assert WEIGHTS in hub.fetched
    assert [line for line in reports.lines if line.endswith(" fetched")], reports.lines


def test_each_tenth_of_a_download_is_told_once_with_the_time_left() -> None:
    progress = Progress("mine", 1_000)
    assert progress.line(99, 1.0) is None
    assert progress.line(250, 10.0) == "mine: 250 bytes of 1.0 kB fetched, about 30 s left"
    assert progress.line(299, 11.0) is None
    assert progress.line(1_000, 12.0) == "mine: 1.0 kB of 1.0 kB fetched"
    assert progress.line(1_001, 13.0) is None


def test_nothing_is_told_of_what_is_here(tmp_path: Path) -> None:
    reports = Lines()
    with showing_progress("mine", tmp_path / "snapshots" / "commit", 0, reports):
        pass
    assert reports.lines == []


@pytest.mark.parametrize("version", [0, 1])
def test_free_memory_is_what_a_container_has_left(version: int, tmp_path: Path) -> None:
    """Of both versions of control groups; pages of files that can be taken back count as free."""
    limit, used, statistics, line = cost.CGROUP_FILES[version]
    (tmp_path / limit).parent.mkdir(exist_ok=True)
    (tmp_path / limit).write_text("1000\n")
    (tmp_path / used).write_text("700\n")
    (tmp_path / statistics).write_text(f"anon 5\n{line} 200\n")
    assert [*cost._free_in_cgroup(tmp_path)] == [500]
    (tmp_path / limit).write_text("max\n")
    assert not [*cost._free_in_cgroup(tmp_path)]


@pytest.mark.parametrize("form", [TRANSFORMERS.name, GGUF.name])
def test_a_decoder_is_estimated_by_its_weights_staying_in_their_files(form: str) -> None:
    """Its export takes less than all weights in float32; that of others takes more."""
    decoder = Plan(Path("x"), form, architecture="LlamaForCausalLM", num_weights=1_100_000_000)
    target = cost.ExportTarget("int8")
    assert cost.ExportTarget("auto").cost(decoder) == target.cost(decoder)
    for precision in ("int8", "int8-weights", "int4-weights", "stored"):
        made = cost.ExportTarget(precision).cost(decoder)
        assert made.export_memory_bytes < 4 * decoder.num_weights
    encoder = replace(decoder, architecture="BertForMaskedLM")
    assert target.cost(encoder).export_memory_bytes > 4 * encoder.num_weights


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_plan_has_the_size_of_the_graph_in_each_precision(is_tied: bool, tmp_path: Path) -> None:
    """Of a Llama whose table of words is a quarter of its weights; within 5 per cent."""
    network = tiny_llama(vocab_size=2_000, hidden_size=256, intermediate_size=512, is_tied=is_tied)
    graph = trace_decoder(network, precision="fp32")
    made = {
        "fp32": graph,
        "fp16": trace_decoder(network, precision="fp16"),
        "int8": quantize_rows(graph),
        "int8-weights": quantize_blocks(graph, bits=8),
        "int4-weights": quantize_blocks(graph, bits=4),
    }
    weights = {name: each.detach() for name, each in network.named_parameters()}
    save_file(weights, tmp_path / "model.safetensors")
    headers = read_headers(tmp_path / "model.safetensors")
    plan = Plan(
        tmp_path,
        TRANSFORMERS.name,
        architecture="LlamaForCausalLM",
        num_weights=sum(header.num_values for header in headers.values()),
        num_in_tables=num_in_tables(headers),
        is_tied=is_tied,
    )
    for precision, model in made.items():
        planned = cost.ExportTarget(precision).cost(plan).disk_bytes - cost.MARGIN_BYTES
        assert planned == pytest.approx(num_bytes(model), rel=0.05), precision


EIGHT = Plan(
    Path("x"), TRANSFORMERS.name, architecture="LlamaForCausalLM", num_weights=8_030_000_000
)


def planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str, memory: int, disk: int
) -> list[str]:
    """The lines of a plan for 8 billion weights, with so many bytes free."""
    reports = Lines()
    monkeypatch.setattr(room, "free_memory", lambda: memory)
    monkeypatch.setattr("commands.folders.cache.free_disk", lambda _: disk)
    source, cache = parse_source("eight=/x"), Cache(tmp_path / "cache", 10**12)
    room.check_room(source, EIGHT, cost.ExportTarget(precision), cache, reports)
    return reports.lines


@pytest.mark.parametrize("precision", ["int8", "int4-weights"])
def test_eight_billion_weights_fit_a_machine_of_24_gb(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a warning, in 15 GB of disk; with less of it a start is refused as it begins."""
    lines = planned(tmp_path, monkeypatch, precision, 22 * 10**9, 15 * 10**9)
    assert len(lines) == 1, lines
    for disk in (0, 4 * 10**9):
        with pytest.raises(OutputError, match=r"the export of eight takes about .*: make room, or"):
            planned(tmp_path, monkeypatch, precision, 22 * 10**9, disk)
    assert not list(tmp_path.rglob("*"))


def test_half_precision_on_a_cpu_is_said_to_be_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = planned(tmp_path, monkeypatch, "fp16", 64 * 10**9, 10**12)
    assert "eight: warning: fp16 is slower than fp32 on a CPU" in lines[1]
    assert not cost.remark_of(EIGHT, cost.ExportTarget("fp16", "cuda").cost(EIGHT), "cuda")
