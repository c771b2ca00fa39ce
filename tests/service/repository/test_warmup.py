"""`model_warmup` and `label_filename`: what a model does before its first request, and knows."""

import struct
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from service.contract.files import ModelSource
from service.contract.interface import ModelInterface
from service.contract.model_config import parse_config
from service.contract.tensors import Signature
from service.contract.warmup_samples import warmup_samples
from service.errors import LoadError, ModelFailed
from service.repository.loading import LoadedModel, Openers, load_model
from service.repository.warmup import warm_up
from service.runtime.session import RunStop
from service.settings import Settings
from tests.fakes.serving import serving
from tests.fakes.sessions import (
    PATIENCE_S,
    FakeDecoders,
    FakeSession,
    FakeSessions,
    classifier_manifest,
    generator_manifest,
    spec,
    text_session,
    token_ids,
    write_model,
)

KINDS = ("FP32", "FP16", "BF16", "INT8", "UINT64", "BOOL", "BYTES")
ALL_KINDS = Signature(tuple(spec(kind, kind, -1, 2) for kind in KINDS), (spec("y", "FP32", -1, 1),))
ONE = Signature((spec("x", "FP32", -1, -1),), (spec("y", "FP32", -1, -1),))


def echo(signature: Signature) -> FakeSession:
    return FakeSession(
        signature, lambda inputs: {"y": np.zeros((len(next(iter(inputs.values()))), 1), np.float32)}
    )


def sample(inputs: str, batch_size: int = 1, count: int = 0) -> str:
    return f"model_warmup {{ name: 'first' batch_size: {batch_size} count: {count} {inputs} }}"


def an_input(source: str, name: str = "x", kind: str = "FP32", dims: str = "3") -> str:
    return f"inputs {{ key: '{name}' value {{ data_type: TYPE_{kind} dims: [{dims}] {source} }} }}"


def load(
    repository: Path,
    config: str,
    make: Callable[[], FakeSession] = lambda: echo(ONE),
    **manifest: Any,
) -> tuple[LoadedModel, FakeSessions]:
    if not (repository / "m").exists():
        write_model(repository, "m", **manifest)
    (repository / "m" / "config.pbtxt").write_text(config)
    sessions = FakeSessions(m=make)
    openers = Openers(sessions, FakeDecoders())
    settings = Settings(model_repository=repository, num_threads=1, measure_cost_s=0.0)
    return load_model(ModelSource.of(repository, "m"), settings, openers), sessions


def test_a_sample_is_run_as_often_as_it_says_with_as_many_rows(tmp_path: Path) -> None:
    _, sessions = load(
        tmp_path, "max_batch_size: 8 " + sample(an_input("zero_data: true"), batch_size=4, count=3)
    )
    runs = sessions["m"].batches
    assert [run["x"].tolist() for run in runs] == [[[0.0, 0.0, 0.0]] * 4] * 3


def test_random_data_are_of_every_type_and_the_same_every_time(tmp_path: Path) -> None:
    inputs = " ".join(
        an_input("random_data: true", kind, "STRING" if kind == "BYTES" else kind, "2")
        for kind in KINDS
    )
    seen = []
    for _ in range(2):
        _, sessions = load(tmp_path, f"max_batch_size: 8 {sample(inputs)}", lambda: echo(ALL_KINDS))
        (run,) = sessions["m"].batches
        seen.append({name: array.tolist() for name, array in run.items()})
        for tensor in ALL_KINDS.inputs:
            assert run[tensor.name].dtype == tensor.datatype.dtype
            assert run[tensor.name].shape == (1, 2)
    assert seen[0] == seen[1]
    assert seen[0]["BYTES"] == [["", ""]]
    assert all(value in range(128) for value in seen[0]["UINT64"][0])


def test_a_file_gives_one_row_which_every_row_repeats(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m") / "warmup"
    folder.mkdir()
    (folder / "row").write_bytes(np.array([1, 2, 3], "<f4").tobytes())
    _, sessions = load(
        tmp_path, "max_batch_size: 8 " + sample(an_input("input_data_file: 'row'"), batch_size=2)
    )
    assert sessions["m"].batches[0]["x"].tolist() == [[1, 2, 3], [1, 2, 3]]


def test_a_text_model_warms_up_through_its_tokenizer(tmp_path: Path) -> None:
    manifest = classifier_manifest()
    folder = write_model(tmp_path, "m", manifest) / "warmup"
    folder.mkdir()
    (folder / "text").write_bytes(struct.pack("<I", 11) + b"win a prize")
    text = an_input("input_data_file: 'text'", "text", "STRING", "1")
    _, sessions = load(tmp_path, sample(text, batch_size=2), lambda: text_session("logits", 3))
    (run,) = sessions["m"].batches
    assert run["input_ids"].tolist() == [token_ids("win a prize")] * 2


def test_a_reshaped_input_warms_up_in_the_graph_s_shape(tmp_path: Path) -> None:
    config = """max_batch_size: 8
      input { name: 'x' data_type: TYPE_FP32 dims: 4 reshape { shape: [2, 2] } }
      output { name: 'y' data_type: TYPE_FP32 dims: 1 }"""
    graph = Signature((spec("x", "FP32", -1, 2, 2),), (spec("y", "FP32", -1, 1),))
    _, sessions = load(
        tmp_path, config + sample(an_input("zero_data: true", dims="4")), lambda: echo(graph)
    )
    assert sessions["m"].batches[0]["x"].shape == (1, 2, 2)


def test_a_model_that_fails_its_warm_up_is_not_served(tmp_path: Path) -> None:
    def fail(inputs: Any) -> Any:
        raise ModelFailed("no such kernel")

    with pytest.raises(LoadError, match="model_warmup 'first' failed: no such kernel"):
        load(
            tmp_path,
            "max_batch_size: 8 " + sample(an_input("zero_data: true")),
            lambda: FakeSession(ONE, fail),
        )


def test_a_sample_that_does_not_end_is_stopped_and_fails_the_load(tmp_path: Path) -> None:
    def run(inputs: Any, stopping: RunStop) -> None:
        stopped = Event()
        stopping.then(stopped.set)
        assert stopped.wait(PATIENCE_S)
        raise ModelFailed("Exiting due to terminate flag being set to true")

    config = parse_config("max_batch_size: 8 " + sample(an_input("zero_data: true")), "m")
    interface = ModelInterface("m", 1, Signature((spec("x", "FP32", -1),), ()), 8)
    with pytest.raises(LoadError, match="'first' failed: it lasted longer than 0"):
        warm_up(warmup_samples(config), interface, tmp_path, run, max_s=0.01)


@pytest.mark.asyncio
async def test_a_model_is_warm_before_it_is_ready(tmp_path: Path) -> None:
    write_model(
        tmp_path, "m", config="max_batch_size: 8 " + sample(an_input("zero_data: true"), count=5)
    )
    sessions = FakeSessions(m=lambda: echo(ONE))
    async with serving(tmp_path, sessions):
        assert len(sessions["m"].batches) == 5


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (sample(an_input("zero_data: true"), batch_size=0), "batch_size 0, expected 1 to 8"),
        (sample(an_input("zero_data: true"), batch_size=9), "batch_size 9, expected 1 to 8"),
        (sample(""), "has inputs [], but the model takes ['x']"),
        (sample(an_input("zero_data: true", name="z")), "has inputs ['z'], but the model takes"),
        (
            sample(an_input("zero_data: true", kind="INT32")),
            "input 'x' is TYPE_INT32, but the model takes TYPE_FP32",
        ),
        (sample(an_input("zero_data: true", dims="2, 2")), "has dims [2, 2], but the model takes"),
        (
            sample(an_input("zero_data: true", dims=str(2**40)), batch_size=8),
            "has more than 268435456 bytes of inputs",
        ),
        (sample(an_input("input_data_file: 'none'")), "none: not there, or no file"),
        (sample(an_input("input_data_file: 'short'")), "its file has 4 bytes, expected 12"),
    ],
)
def test_a_wrong_sample_is_refused_with_its_name(tmp_path: Path, text: str, part: str) -> None:
    folder = write_model(tmp_path, "m") / "warmup"
    folder.mkdir()
    (folder / "short").write_bytes(b"1234")
    with pytest.raises(LoadError) as caught:
        load(tmp_path, f"max_batch_size: 8 {text}")
    assert part in str(caught.value)


def test_strings_whose_lengths_lie_are_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m", classifier_manifest()) / "warmup"
    folder.mkdir()
    (folder / "text").write_bytes(struct.pack("<I", 2**31) + b"win")
    text = an_input("input_data_file: 'text'", "text", "STRING", "1")
    with pytest.raises(LoadError, match="incomplete string data for inference input 'text'"):
        load(tmp_path, sample(text), lambda: text_session("logits", 3))


def test_a_generative_model_has_no_warm_up(tmp_path: Path) -> None:
    text = sample(an_input("zero_data: true", "text_input", "STRING", "1"))
    with pytest.raises(LoadError, match="model_warmup is not supported for generative models"):
        load(tmp_path, text, manifest=generator_manifest())


LABELLED = "max_batch_size: 8 output { name: 'y' data_type: TYPE_FP32 dims: -1 %s }"


@pytest.mark.asyncio
async def test_labels_are_the_lines_of_the_file(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m", config=LABELLED % "label_filename: 'labels.txt'")
    (folder / "labels.txt").write_text("ham\nspam\n\u2603\n", encoding="utf-8")
    async with serving(tmp_path, FakeSessions(m=lambda: echo(ONE))) as served:
        assert served.app.repository.find("m").labels == {"y": ["ham", "spam", "\u2603"]}


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("labels.txt", None, "labels.txt: not there, or no file"),
        ("1", None, "1: not there, or no file"),
        ("../secret", None, "output.label_filename is '../secret', expected a file's name"),
        ("..", None, "output.label_filename is '..', expected a file's name"),
        ("n" * 256, None, "output.label_filename has 256 bytes, expected at most 255"),
        ("labels.txt", b"\xff\xfe", "labels.txt: not UTF-8"),
        ("labels.txt", bytes(16 * 2**20 + 1), "labels.txt: larger than 16777216 bytes"),
    ],
)
def test_a_wrong_label_file_is_refused(
    tmp_path: Path, name: str, content: bytes | None, part: str
) -> None:
    folder = write_model(tmp_path, "m")
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(LoadError) as caught:
        load(tmp_path, LABELLED % f"label_filename: '{name}'")
    assert part in str(caught.value)
