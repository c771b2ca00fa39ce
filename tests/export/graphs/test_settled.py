"""Graphs whose weights stay in files are computed with and written as those in memory are."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from export.graphs.cached_decoder import trace_decoder
from export.graphs.files import save, save_sharing, settled
from export.graphs.graph import open_session
from export.graphs.tensors import array_of, file_of, made_later
from export.precision.blockwise import quantize_blocks
from export.precision.per_token import quantize_rows
from export.precision.samples import prompt_of
from service.runtime.session import OnnxSession, SessionOptions
from tests.export.graphs.test_weightless import network_of

ROW = [1, 5, 9, 2]
ROUNDINGS: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "fp32": lambda graph: graph,
    "int8": quantize_rows,
    "int4-weights": lambda graph: quantize_blocks(graph, bits=4),
}


def logits(session: OnnxSession) -> np.ndarray:
    return session.run(prompt_of(ROW, session.signature.inputs), ["logits"])[0]


@pytest.mark.parametrize("precision", ROUNDINGS)
@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_rounded_weights_of_files_are_those_of_weights_in_memory(
    name: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file that sessions read, and that takes its place beside the graph."""
    monkeypatch.setattr("export.graphs.files.MAX_EMBEDDED_BYTES", 0)
    monkeypatch.setattr(save_sharing, "__defaults__", (512,))  # bytes of a large tensor
    round_weights = ROUNDINGS[precision]
    expected = round_weights(trace_decoder(network_of(name, 2)))
    with made_later(tmp_path / "repository"):
        graph = round_weights(trace_decoder(network_of(name, 2, is_lazy=True)))
        [written] = settled([graph], max_bytes=0)
        assert any(map(file_of, written.graph.initializer))
        found = {tensor.name: array_of(tensor) for tensor in written.graph.initializer}
        for tensor in expected.graph.initializer:
            assert found[tensor.name].tobytes() == array_of(tensor).tobytes()
        same = logits(open_session(expected))
        assert np.array_equal(logits(open_session(written)), same)
        (tmp_path / "1").mkdir()
        save(written, tmp_path / "1" / "model.onnx")
    assert not (tmp_path / "repository").exists()
    saved = OnnxSession(tmp_path / "1" / "model.onnx", SessionOptions(num_threads=1))
    assert np.array_equal(logits(saved), same)
