"""Every measure by its command, with the smallest options, on tiny models with random weights."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from export.exporter import export_any
from export.settings import ExportSettings
from loadtests.measure import results
from loadtests.measure.harness import program
from loadtests.measure.measures import MEASURES
from tests.fakes.tiny import tiny_embedder
from tests.fakes.tiny_llama import tiny_llama, tiny_llama_generator

FOLDER = "FOLDER"  # of the models, in options
GRAPH = f"{FOLDER}/decoders/llama/1/model.onnx"
OF_TEXTS = ("--repository", f"{FOLDER}/encoders", "--model", "embedder", "--precision", "fp32")
OF_LLAMA = ("--repository", f"{FOLDER}/decoders", "--model", "llama")
LABELLED = "ham\twe are on lunch\nspam\tclaim a free prize now\n"
SMALLEST: dict[str, Sequence[str]] = {
    "batching": (*OF_TEXTS, "--limit", "8", "--concurrency", "2", "--per-request", "2"),
    "cost": (*OF_TEXTS, "--limit", "32", "--concurrency", "2"),
    "steps": ("--graph", GRAPH, "--rows", "2", "--context", "4", "--tokens", "4", "--room", "32"),
    "limits": ("--graph", GRAPH, "--rows", "2", "--context", "4"),
    "overhead": (*OF_LLAMA, "--rows", "2", "--tokens", "24"),
    "prefixes": ("--shared", "32", "--layers", "1", "--width", "64"),
    "grammars": (*OF_LLAMA, "--rows", "2", "--tokens", "8"),
    "adapters": (*OF_LLAMA, "--rows", "5", "--tokens", "2"),
    "accuracy": ("--version", f"{FOLDER}/encoders/embedder/1", "--labelled", f"{FOLDER}/texts.tsv"),
    "startup": ("--repository", f"{FOLDER}/encoders", "--flag=--precision=fp32"),
    "observability": ("--requests", "8", "--concurrency", "2"),
}
# A job has to last longer than the calls beside it, under valgrind a start takes a minute, and a
# first start of a folder traces its graph in a process of its own.
LONG: dict[str, Sequence[str]] = {
    "folders": ("--size", "tiny", "--random", f"{FOLDER}/random", "--tokens", "4"),
    "bulk": (*OF_TEXTS, "--limit", "8192", "--seconds", "2", "--calls-per-s", "10"),
    "instructions": (*OF_TEXTS[:4], "--requests", "32", "--concurrency", "8"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "texts.tsv").write_text(LABELLED, encoding="utf-8")
    export_any(tiny_embedder(), ExportSettings("embedder", folder / "encoders", "fp32"))
    llama = tiny_llama_generator(tiny_llama(num_layers=1, max_positions=128))
    export_any(llama, ExportSettings("llama", folder / "decoders", "fp32", lora_rank=2))
    return folder


def test_every_measure_is_tried() -> None:
    assert {*SMALLEST, *LONG} == {measure.name for measure in MEASURES}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *SMALLEST.items(),
        *(pytest.param(*each, marks=pytest.mark.long) for each in LONG.items()),
    ],
    ids=[*SMALLEST, *LONG],
)
def test_a_measure_runs_by_its_command_and_has_figures_of_every_way(
    name: str, options: Sequence[str], folder: Path, tmp_path: Path
) -> None:
    options = [each.replace(FOLDER, str(folder)) for each in options]
    command = [name, *options, "--rounds", "1", "--warm-up", "0", "--output", str(tmp_path)]
    outcome = CliRunner().invoke(program(MEASURES), command)
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    result = results.read(tmp_path / f"{name}.json")
    assert {figure.row for figure in result.figures} == set(result.rounds)
