"""Graphs as files: whole, or with their weights beside them."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from export.graphs.cached_decoder import trace_decoder
from export.graphs.files import WEIGHTS_SUFFIX, check, save
from service.generation.decoder import OnnxDecoder
from service.generation.step_logits import StepLogits
from service.runtime.session import OnnxSession, SessionOptions
from tests.fakes.tiny_gpt import tiny_gpt


def logits_of(path: Path) -> np.ndarray:
    session = OnnxSession(path, SessionOptions())
    decoder = OnnxDecoder(session, num_slots=1, max_tokens=16, max_rows=1)
    return StepLogits.of(decoder.run(0, [np.arange(1, 9)], [0])).whole().copy()


def test_a_large_graph_computes_the_same_with_its_weights_beside_it(tmp_path: Path) -> None:
    """As if a message held 100 KB, of the 400 KB that it has."""
    graph = trace_decoder(tiny_gpt())
    whole, parted = tmp_path / "whole.onnx", tmp_path / "parted.onnx"
    save(graph, whole)
    save(graph, parted, max_bytes=100_000)
    weights = tmp_path / f"parted.onnx{WEIGHTS_SUFFIX}"
    assert {path.name for path in tmp_path.iterdir()} == {whole.name, parted.name, weights.name}
    assert parted.stat().st_size < 100_000 < weights.stat().st_size
    np.testing.assert_array_equal(logits_of(parted), logits_of(whole))


def test_a_graph_against_the_format_is_refused() -> None:
    with pytest.raises(onnx.checker.ValidationError):
        check(onnx.ModelProto())
