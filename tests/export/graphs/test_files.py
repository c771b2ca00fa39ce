"""Graphs as files: whole, with their weights beside them, and two that share them."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from export.graphs.cached_decoder import trace_decoder
from export.graphs.files import check, copy_of, save, save_sharing
from export.graphs.graph import open_session
from service.errors import LoadError
from service.generation.choosing.step_logits import StepLogits
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.decoders.opening import CacheLimits, open_decoder
from service.runtime.session import OnnxSession, SessionOptions, num_bytes_of
from service.runtime.shared_weights import TABLES_SUFFIX, WEIGHTS_SUFFIX, SharedWeights
from tests.fakes.tiny_gpt import tiny_gpt, tiny_graph

LARGE_BYTES = 1_000  # of a tensor, in place of 64 KiB: those of the tiny decoder are smaller


def logits_of(session: OnnxSession) -> np.ndarray:
    decoder = OnnxDecoder(session, num_slots=1, max_tokens=16, max_rows=1)
    return StepLogits.of(decoder.run(0, [np.arange(1, 9)], [0])).whole().copy()


def test_a_large_graph_computes_the_same_with_its_weights_beside_it(tmp_path: Path) -> None:
    """As if a message held 100 KB, of the 400 KB that it has."""
    graph = trace_decoder(tiny_gpt(vocab_size=512, hidden_size=128, num_heads=8))
    whole, parted = tmp_path / "whole.onnx", tmp_path / "parted.onnx"
    save(graph, whole)
    save(graph, parted, max_bytes=100_000)
    names = {"whole.onnx", "parted.onnx", "parted.onnx.weights", "parted.onnx.tables"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert parted.stat().st_size < 200_000 < num_bytes_of(parted)
    assert num_bytes_of(whole) == pytest.approx(num_bytes_of(parted), rel=0.1)
    expected = logits_of(OnnxSession(whole, SessionOptions()))
    np.testing.assert_array_equal(logits_of(OnnxSession(parted, SessionOptions())), expected)
    np.testing.assert_array_equal(logits_of(open_session(graph, max_bytes=100_000)), expected)


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4-weights"])
def test_a_session_that_is_loaded_reads_no_file(precision: str, tmp_path: Path) -> None:
    """Products packed their weights, and all other tensors were read: files may be overwritten."""
    graph = tiny_graph(precision)  # type: ignore[arg-type]
    path = tmp_path / "model.onnx"
    save_sharing({path: graph}, path, LARGE_BYTES)
    session = OnnxSession(path, SessionOptions())
    expected = logits_of(OnnxSession(graph.SerializeToString(), SessionOptions()))
    for file in (path.with_suffix(WEIGHTS_SUFFIX), path.with_suffix(TABLES_SUFFIX)):
        num_bytes = file.stat().st_size
        with file.open("r+b") as opened:
            opened.write(b"\1" * num_bytes)  # in place: whoever has it mapped sees it
    np.testing.assert_array_equal(logits_of(session), expected)


def test_two_graphs_share_what_they_have_in_common(tmp_path: Path) -> None:
    """The same decoder twice, under other names of tensors: nothing is written twice."""
    graph = tiny_graph("int8")
    other = copy_of(graph)
    for tensor in other.graph.initializer:
        for node in other.graph.node:
            node.input[:] = [f"{name}.b" if name == tensor.name else name for name in node.input]
        tensor.name = f"{tensor.name}.b"
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = tmp_path / "one/model.onnx", tmp_path / "two/model.onnx"
    beside = two.with_name("model.other.onnx")
    save_sharing({one: graph}, one, LARGE_BYTES)
    save_sharing({two: graph, beside: other}, two, LARGE_BYTES)
    for suffix in (WEIGHTS_SUFFIX, TABLES_SUFFIX):
        assert two.with_suffix(suffix).read_bytes() == one.with_suffix(suffix).read_bytes()
    first = OnnxSession(two, SessionOptions())
    second = OnnxSession(beside, SessionOptions(), first.weights)
    assert first.weights is not None
    assert second.weights is first.weights, "one copy in memory"
    np.testing.assert_array_equal(logits_of(first), logits_of(second))


def test_files_that_are_cut_off_or_missing_are_refused_by_name(tmp_path: Path) -> None:
    graph, path = tiny_graph("int8"), tmp_path / "model.onnx"
    for suffix in (WEIGHTS_SUFFIX, TABLES_SUFFIX):
        save_sharing({path: graph}, path, LARGE_BYTES)
        beside = path.with_suffix(suffix)
        beside.write_bytes(beside.read_bytes()[:-200])
        with pytest.raises(LoadError, match=r"model\.onnx"):
            open_decoder(path, SessionOptions(), CacheLimits(16, 1, 2**20))
        beside.unlink()
        with pytest.raises(LoadError, match=rf"model\{suffix}"):
            open_decoder(path, SessionOptions(), CacheLimits(16, 1, 2**20))


def test_small_tensors_stay_in_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    save_sharing({path: tiny_graph("int8")}, path, large_bytes=2**20)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert SharedWeights.beside(path) is None


def test_a_copy_is_the_graph_and_leaves_it_alone() -> None:
    graph = tiny_graph("int4-weights")
    before = graph.SerializeToString()
    copy = copy_of(graph)
    assert copy.SerializeToString(deterministic=True) == graph.SerializeToString(deterministic=True)
    del copy.graph.node[:], copy.graph.initializer[1:]
    assert graph.SerializeToString() == before


def test_a_graph_against_the_format_is_refused() -> None:
    with pytest.raises(onnx.checker.ValidationError):
        check(onnx.ModelProto())
