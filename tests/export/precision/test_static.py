"""Static int8 on small graphs made by hand: what is rounded, and what stays."""

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.errors import ExportError
from export.graphs.graph import open_session
from export.precision.static import quantize_static

INPUTS, OUTPUTS = 32, 8
OUTLIER = 40.0  # times as large as other channels


def graph_of(nodes: list[NodeProto], outputs: list[str], **weights: np.ndarray) -> onnx.ModelProto:
    """From `x`, float32 [?, 32]."""
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, INPUTS])]
    found = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", ends, found, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def weights_of(seed: int = 0, shape: tuple[int, ...] = (INPUTS, OUTPUTS)) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def rows_of(count: int, seed: int = 1) -> np.ndarray:
    """The first channel is far larger than the others, as in transformers."""
    rows = np.random.default_rng(seed).standard_normal((count, INPUTS), np.float32)
    rows[:, 0] *= OUTLIER
    return rows


def run(model: onnx.ModelProto, rows: np.ndarray) -> list[np.ndarray]:
    session = open_session(model)
    return session.run({"x": rows}, [spec.name for spec in session.signature.outputs])


def relative_error(model: onnx.ModelProto, quantized: onnx.ModelProto, rows: np.ndarray) -> float:
    """Largest of the outputs'."""
    pairs = zip(run(quantized, rows), run(model, rows), strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


MATMUL_ADD = (
    [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["b", "product"], ["y"]),
    ],
    {"w": weights_of(), "b": weights_of(2, (OUTPUTS,))},
)
GEMM = (
    [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
    {"w": weights_of(), "b": weights_of(2, (OUTPUTS,))},
)
TRANSPOSED = (
    [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)],
    {"w": weights_of(0, (OUTPUTS, INPUTS))},
)


@pytest.mark.parametrize("case", [MATMUL_ADD, GEMM, TRANSPOSED])
def test_a_product_and_its_bias_become_one_integer_product(
    case: tuple[list[NodeProto], dict[str, np.ndarray]],
) -> None:
    """However it is written; and within 1 %, though a channel is 40 times larger than the rest."""
    nodes, weights = case
    model = graph_of(nodes, ["y"], **weights)
    quantized = quantize_static(model, [{"x": rows_of(64)}])
    assert ops(quantized) == ["Mul", "QuantizeLinear", "MatMulIntegerToFloat"]
    kept = {tensor.name: tensor.data_type for tensor in quantized.graph.initializer}
    assert "w" not in kept, "the float weights are gone"
    assert kept["w.x.int8"] == TensorProto.INT8
    assert relative_error(model, quantized, rows_of(64)) < 0.01


def test_products_of_one_activation_share_its_rounding() -> None:
    """Two products: one division and one rounding, and weights each."""
    nodes = [helper.make_node("MatMul", ["x", name], [f"{name}.out"]) for name in "ab"]
    model = graph_of(nodes, ["a.out", "b.out"], a=weights_of(3), b=weights_of(4))
    quantized = quantize_static(model, [{"x": rows_of(64)}])
    assert sorted(ops(quantized)) == sorted(
        ["Mul", "QuantizeLinear", "MatMulIntegerToFloat", "MatMulIntegerToFloat"]
    )
    assert relative_error(model, quantized, rows_of(64)) < 0.01


def test_weights_that_others_read_stay_for_them() -> None:
    """Word vectors are looked up and multiplied with; only the product is int8."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Gather", ["w", "index"], ["row"]),
    ]
    model = graph_of(nodes, ["y", "row"], w=weights_of(), index=np.array([1]))
    quantized = quantize_static(model, [{"x": rows_of(8)}])
    np.testing.assert_array_equal(run(quantized, rows_of(2))[1], weights_of()[[1]])


def test_a_product_that_is_read_before_its_bias_keeps_its_addition() -> None:
    nodes, weights = MATMUL_ADD
    model = graph_of(nodes, ["y", "product"], **weights)
    quantized = quantize_static(model, [{"x": rows_of(64)}])
    assert "Add" in ops(quantized)
    assert relative_error(model, quantized, rows_of(64)) < 0.01


def test_products_of_two_activations_stay_float() -> None:
    product = [
        helper.make_node("Transpose", ["x"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["z"]),
    ]
    nodes, weights = GEMM
    model = graph_of([*product, *nodes], ["z", "y"], **weights)
    found = ops(quantize_static(model, [{"x": rows_of(64)}]))
    assert found[:2] == ["Transpose", "MatMul"]
    assert "Gemm" not in found


def test_a_graph_without_weights_to_round_is_refused() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    with pytest.raises(ExportError, match="nothing to round"):
        quantize_static(graph_of(nodes, ["y"]), [])


def test_a_row_is_the_same_to_the_bit_beside_any_other() -> None:
    """Also beside one a thousand times larger than calibration saw, which is cut off."""
    nodes, weights = GEMM
    quantized = quantize_static(graph_of(nodes, ["y"], **weights), [{"x": rows_of(64)}])
    row, huge = rows_of(1), 1000 * rows_of(1)
    alone, beside = run(quantized, row)[0], run(quantized, np.concatenate([row, huge]))[0]
    np.testing.assert_array_equal(alone[0], beside[0])
    assert np.isfinite(beside).all()


def test_channels_that_are_always_zero_do_no_harm() -> None:
    nodes, weights = GEMM
    rows = rows_of(64)
    rows[:, 5:] = 0
    model = graph_of(nodes, ["y"], **weights)
    assert relative_error(model, quantize_static(model, [{"x": rows}]), rows) < 0.01
    silent = quantize_static(model, [{"x": 0 * rows}])
    np.testing.assert_allclose(run(silent, 0 * rows)[0][0], weights["b"], rtol=1e-6)


def test_the_float_graph_stays_as_it_was() -> None:
    nodes, weights = MATMUL_ADD
    model = graph_of(nodes, ["y"], **weights)
    before = model.SerializeToString()
    first = quantize_static(model, [{"x": rows_of(8)}])
    assert model.SerializeToString() == before
    assert quantize_static(model, [{"x": rows_of(8)}]).SerializeToString() == (
        first.SerializeToString()
    ), "the same samples give the same bytes"


def test_without_samples_it_is_refused() -> None:
    nodes, weights = GEMM
    with pytest.raises(ExportError, match="needs sample inputs"):
        quantize_static(graph_of(nodes, ["y"], **weights), [])


def test_scaled_products_are_refused() -> None:
    model = graph_of(
        [helper.make_node("Gemm", ["x", "w"], ["y"], "odd", alpha=0.5)], ["y"], w=weights_of()
    )
    with pytest.raises(ExportError, match="odd"):
        quantize_static(model, [{"x": rows_of(8)}])


def test_values_of_the_calibrated_range_are_not_cut_off() -> None:
    """The ends of the range, of both signs and of one alone, and the largest weights.

    An identity gives back what went in: within half a step of 255 over the range, and half a step
    of 127 of the weights. What is beyond the range becomes its end.
    """
    identity = np.eye(INPUTS, dtype=np.float32)
    model = graph_of([helper.make_node("MatMul", ["x", "w"], ["y"])], ["y"], w=identity)
    for low, high in ((-1.0, 1.0), (0.0, 1.0), (-3.0, 1.0)):
        ends = np.repeat(np.linspace(low, high, 9, dtype=np.float32)[:, None], INPUTS, axis=1)
        quantized = quantize_static(model, [{"x": ends}])
        step = (high - low) / 255
        np.testing.assert_allclose(run(quantized, ends)[0], ends, atol=0.51 * step)
        beyond = np.array([[2 * low] * INPUTS, [2 * high] * INPUTS], np.float32)
        np.testing.assert_allclose(
            run(quantized, beyond)[0], np.clip(beyond, low, high), atol=0.51 * step
        )
