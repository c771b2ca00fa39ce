"""Word vectors that are the output layer too: held once in int8, and read as they were rounded."""
# ruff: noqa: N806 - suffixes are array layouts: V tokens, D hidden size, S tokens of a row

import copy
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.checks.decoding import measure_parity
from export.graphs.cached_decoder import trace_decoder
from export.graphs.graph import open_session
from export.precision.per_token import quantize_rows
from export.recipes.decoders import LIMITS
from tests.fakes.tiny_gpt import VOCAB_SIZE, tiny_graph
from tests.fakes.tiny_llama import tiny_llama

TABLE = "words.weight"


def tensors(graph: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.graph.initializer}


def test_a_tied_table_is_held_once_and_in_int8() -> None:
    """Its bytes in the file: one for each value and four for each row."""
    exact, rounded = tensors(tiny_graph()), tensors(tiny_graph("int8"))
    table_VD = exact[TABLE]
    of_table = [value for value in rounded.values() if VOCAB_SIZE in value.shape]
    assert sum(value.nbytes for value in of_table) == table_VD.size + 4 * VOCAB_SIZE
    off_VD = rounded[f"{TABLE}.int8"] * rounded[f"{TABLE}.scale"] - table_VD
    assert (np.abs(off_VD) <= 0.501 * rounded[f"{TABLE}.scale"]).all()


def test_rows_are_read_as_they_were_rounded() -> None:
    """By the graph itself, up to the last bit of a product of two floats."""
    graph = copy.deepcopy(tiny_graph("int8"))
    (rows,) = (
        node.output[0]
        for node in graph.graph.node
        if node.op_type == "Mul" and node.input[0].endswith(".float")
    )
    graph.graph.output.append(helper.make_tensor_value_info(rows, TensorProto.FLOAT, None))
    session = open_session(graph)
    ids_1S = np.array([[0, 7, VOCAB_SIZE - 1, 7]])
    feeds = {spec.name: _zeros(spec.dims, spec.datatype.dtype) for spec in session.signature.inputs}
    feeds |= {
        "input_ids": ids_1S,
        "position_ids": np.arange(4)[None],
        "seqlens_k": np.array([3], np.int32),
        "total_sequence_length": np.array(4, np.int32),
        "logit_positions": np.array([3]),
    }
    (rows_1SD,) = session.run(feeds, [rows])
    values = tensors(graph)
    expected_VD = values[f"{TABLE}.int8"] * values[f"{TABLE}.scale"]
    np.testing.assert_allclose(rows_1SD, expected_VD[ids_1S], rtol=1e-6)


def _zeros(dims: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """With one row and room for four tokens."""
    sizes = [size if size > 0 else (4 if axis == 2 else 1) for axis, size in enumerate(dims)]
    return np.zeros(sizes, dtype)


@pytest.mark.parametrize("is_tied", [True, False])
def test_decoders_of_llama_s_kind_decode_from_it(is_tied: bool) -> None:
    """With scaled embeddings; a table of its own stays in float32."""
    network = tiny_llama(embedding_scale=8.0, is_tied=is_tied)
    graph = quantize_rows(trace_decoder(network))
    counts = Counter(tensor.data_type for tensor in graph.graph.initializer if TABLE in tensor.name)
    expected = {TensorProto.INT8: 1, TensorProto.FLOAT: 1} if is_tied else {TensorProto.FLOAT: 1}
    assert counts == expected
    LIMITS["int8"].check(measure_parity(network, graph, is_exact=False))
