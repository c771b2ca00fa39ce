"""What is in the servers that are compared: their function of texts, and the session alone."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.exporter import export_any
from export.settings import ExportSettings
from loadtests.compare.servers.launching import APPS
from loadtests.compare.worker import Setup, Work
from loadtests.compare.workers import bare_session
from loadtests.measure.batching import BareSession
from tests.fakes.tiny import tiny_embedder, tiny_tokenizer, torch_outputs_of_texts

TEXTS = ["free prize", "lunch", "we are on our way home now", "call", "claim now", "7 at 9?"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("repository")
    export_any(
        tiny_embedder(), ExportSettings(name="model", repository=repository, precision="fp32")
    )
    return repository


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    return torch_outputs_of_texts(tiny_embedder(), TEXTS)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_session_alone_answers_every_text_in_its_order(
    concurrency: int, exported: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch has more rows than there are clients."""
    monkeypatch.setattr(bare_session, "LEAST_S", 0.0)
    run = bare_session.open_engine(Setup(str(exported), 1, "", "", {}))
    sizes: list[int] = []
    monkeypatch.setattr(BareSession, "run", _watched(BareSession.run, sizes))
    answer = run(Work([], concurrency, texts=TEXTS))
    assert np.array(answer.outputs) == pytest.approx(expected, abs=1e-5)
    assert max(sizes) <= concurrency
    assert answer.seconds > 0


def _watched(run: Any, sizes: list[int]) -> Any:
    def watched(self: object, batches: list[dict[str, np.ndarray]]) -> Any:
        sizes.extend(len(batch["input_ids"]) for batch in batches)
        return run(self, batches)

    return watched


def embedder(folder: Path, monkeypatch: pytest.MonkeyPatch, pooling: str = "") -> Any:
    """The function as a server imports it, from where it lies."""
    for name, value in {
        "FOLDER": str(folder),
        "POOLING": pooling,
        "MAX_TOKENS": "6",
        "THREADS": "1",
        "ROWS": "8",
        "WAIT_S": "0.01",
    }.items():
        monkeypatch.setenv(f"EMBEDDER_{name}", value)
    monkeypatch.syspath_prepend(APPS)
    for name in ("embedder", "pooling"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("embedder").Embedder()


def test_servers_embed_with_the_graph_that_ours_serves(
    exported: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = embedder(exported / "model" / "1", monkeypatch)
    vectors = embed(TEXTS[:2])
    assert vectors == pytest.approx(expected[:2], abs=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_hidden_states_are_pooled_to_float32_of_length_1(
    pooling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64 a server of tensors would send twice as many bytes as its client expects."""
    write_hidden_states(tmp_path)
    vectors = embedder(tmp_path, monkeypatch, pooling)(TEXTS)
    assert vectors.dtype == np.float32
    tokenizer = tiny_tokenizer()
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = tokenizer.encode(text).ids[:6]
        ids[-1] = tokenizer.encode(text).ids[-1]  # a text that is cut keeps its end token
        first = ids[0] if pooling == "cls" else np.mean(ids)
        assert vector == pytest.approx(np.array([first, 1]) / np.hypot(first, 1), abs=1e-6)


def write_hidden_states(folder: Path) -> None:
    """A graph whose hidden states are each token's id and 1, and a tokenizer."""
    one, axes = (
        numpy_helper.from_array(np.array(value), name)
        for name, value in (("one", np.float32(1)), ("axes", np.array([-1])))
    )
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["ids", "axes"], ["column"]),
        helper.make_node("Mul", ["column", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "one"], ["ones"]),
        helper.make_node("Concat", ["column", "ones"], ["last_hidden_state"], axis=-1),
    ]
    zero = numpy_helper.from_array(np.array(np.float32(0)), "zero")
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])
    states = helper.make_tensor_value_info(
        "last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", 2]
    )
    graph = helper.make_graph(nodes, "g", [ids], [states], [one, axes, zero])
    opset = helper.make_opsetid("", 17)
    onnx.save(
        helper.make_model(graph, opset_imports=[opset], ir_version=8), str(folder / "model.onnx")
    )
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
