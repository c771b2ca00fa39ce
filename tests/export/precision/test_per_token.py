"""int8 with a scale per token: what is rounded, by how much, and that no token sees another."""
# ruff: noqa: N803, N806 - suffixes are array layouts: R rows, K inputs, N outputs

from collections import Counter

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.checks.decoding import DecoderParity, measure_parity
from export.graphs.graph import open_session
from export.precision.per_token import quantize_rows
from tests.fakes.tiny_gpt import NUM_LAYERS, tiny_gpt, tiny_graph

NUM_PRODUCTS = 4 * NUM_LAYERS + 1  # attention in and out, expand, contract; the output layer
K, N = 96, 64
WEIGHTS_KN = np.random.default_rng(0).standard_normal((K, N)).astype(np.float32)


def product(weights_KN: np.ndarray, num_uses: int = 1) -> onnx.ModelProto:
    """`x` [rows, K] times weights, repeatedly."""
    names = [f"w{use}" for use in range(num_uses)]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", name], [f"y_{name}"], name) for name in names],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", None])],
        [helper.make_tensor_value_info(f"y_{n}", TensorProto.FLOAT, ["rows", None]) for n in names],
        [numpy_helper.from_array(weights_KN, name) for name in names],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def computed(x_RK: np.ndarray, weights_KN: np.ndarray = WEIGHTS_KN) -> np.ndarray:
    session = open_session(quantize_rows(product(weights_KN)))
    (y_RN,) = session.run({"x": x_RK.astype(np.float32)}, ["y_w0"])
    return y_RN


def rounded(values: np.ndarray, axis: int) -> np.ndarray:
    """To 127 steps on each side of zero, along the axis."""
    step = np.abs(values).max(axis=axis, keepdims=True) / 127
    return np.asarray(np.rint(values / step) * step)


def rows(count: int) -> np.ndarray:
    """Some a thousand times larger than others."""
    generator = np.random.default_rng(1)
    return generator.standard_normal((count, K)) * 10.0 ** generator.integers(-2, 2, (count, 1))


def test_product_is_that_of_rounded_rows_and_rounded_columns() -> None:
    """Within 1e-4 of a row's largest result; and off the exact product, or nothing was rounded."""
    x_RK = rows(9)
    found = computed(x_RK)
    exact = x_RK @ WEIGHTS_KN
    wanted = rounded(x_RK, 1) @ rounded(WEIGHTS_KN.astype(np.float64), 0)
    largest_R1 = np.abs(wanted).max(axis=1, keepdims=True)
    np.testing.assert_allclose(found / largest_R1, wanted / largest_R1, rtol=0, atol=1e-4)
    assert 1e-3 < np.abs((found - exact) / largest_R1).max() < 0.05


def test_row_does_not_depend_on_its_neighbours() -> None:
    """Bit for bit, beside one a million times larger."""
    x_RK = rows(5)
    alone = np.concatenate([computed(row[None]) for row in x_RK])
    x_RK[3] *= 1e6
    beside = computed(x_RK)
    assert np.delete(beside, 3, axis=0).tobytes() == np.delete(alone, 3, axis=0).tobytes()


def test_row_of_zeros_gives_zeros() -> None:
    """Its largest value is 0, by which it is divided; the others are as without it."""
    x_RK = rows(3)
    x_RK[1] = 0
    found = computed(x_RK)
    assert not found[1].any()
    assert found[[0, 2]].tobytes() == computed(x_RK[[0, 2]]).tobytes()


def test_what_is_not_finite_stays_so() -> None:
    """And in its row: the engine fails a sequence whose logits are not finite."""
    x_RK = rows(3)
    x_RK[1, 5] = np.inf
    is_finite_R = np.isfinite(computed(x_RK)).all(axis=1)
    assert is_finite_R.tolist() == [True, False, True]


def test_column_of_zeros_gives_zeros() -> None:
    weights_KN = WEIGHTS_KN.copy()
    weights_KN[:, 7] = 0
    found = computed(rows(2), weights_KN)
    assert not found[:, 7].any()
    assert np.delete(found, 7, axis=1).all()


def test_activation_of_several_products_is_rounded_once() -> None:
    counts = Counter(node.op_type for node in quantize_rows(product(WEIGHTS_KN, 3)).graph.node)
    assert counts["QuantizeLinear"] == 1
    assert counts["MatMulIntegerToFloat"] == 3


def test_every_product_of_a_decoder_is_int8() -> None:
    """And no float32 matrix is left but positions, which are looked up."""
    graph = tiny_graph("int8").graph
    counts = Counter(node.op_type for node in graph.node)
    assert counts["MatMulIntegerToFloat"] == counts["QuantizeLinear"] == NUM_PRODUCTS
    assert not {"MatMul", "Gemm"} & counts.keys()
    floats = [
        t.name
        for t in graph.initializer
        if t.data_type == 1 and min(t.dims, default=1) > 1 < len(t.dims)
    ]
    assert floats == ["positions.table.weight"]


def test_quantising_leaves_the_float_graph_as_it_was() -> None:
    before = tiny_graph().SerializeToString()
    again = quantize_rows(tiny_graph())
    assert again.SerializeToString() == tiny_graph("int8").SerializeToString()
    assert tiny_graph().SerializeToString() == before


def test_cached_decoding_equals_recomputing() -> None:
    """64 tokens of 3 rows, in slots used before and in chunks too; no neighbour moves a bit."""
    parity = measure_parity(tiny_gpt(), tiny_graph("int8"), is_exact=False)
    assert parity.changed_tokens < 0.05
    assert parity.network_changed_tokens < 0.2, "coarse, and no other network"
    assert parity == DecoderParity(
        parity.max_abs_error, parity.changed_tokens, 0.0, 0.0, parity.network_changed_tokens
    )


def test_int8_stays_close_to_pytorch() -> None:
    """Off by more than float32, by less than a tenth of what logits are."""
    parity = measure_parity(tiny_gpt(), tiny_graph("int8"), is_exact=True)
    assert 1e-3 < parity.max_abs_error < 1.0
