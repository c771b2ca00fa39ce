"""int8 and fp16: what is rounded, what it costs, and that the cost is on record."""

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from export.checks.parity import GraphRunner, check_parity, compare, pad
from export.errors import ExportError
from export.precision.static import quantize_static
from export.settings import MAX_ABS_ERROR
from models.networks.attention import MultiHeadAttention
from tests.export.conftest import TraceOf, checkpoint_of
from tests.fakes.tiny import MAX_TOKENS, cosines, ragged_batch, torch_outputs

NO_LIMIT = float("inf")
# Per layer query, key, value, output, expand, contract; then the head's two.
MATMULS_OF_TWO_LAYERS = 2 * 6 + 2


@pytest.fixture(scope="module")
def int8_graph(trace_of: TraceOf) -> onnx.ModelProto:
    return quantize_static(trace_of("bert classifier", "Attention"), calibration())


def calibration(num_rows: int = 64) -> list[dict[str, np.ndarray]]:
    """Rows of all lengths, of any tokens."""
    config = checkpoint_of("bert classifier").encoder_model.config
    generator = np.random.default_rng(7)
    lengths = generator.integers(1, MAX_TOKENS, num_rows, endpoint=True)
    rows = [generator.integers(config.vocab_size, size=length).tolist() for length in lengths]
    return [pad([row], config.pad_token_id) for row in rows]


def test_every_product_with_weights_is_int8_per_channel(int8_graph: onnx.ModelProto) -> None:
    """2 layers and a head: 14 integer products, each with one scale per output channel."""
    weights = {tensor.name: tensor for tensor in int8_graph.graph.initializer}
    products = [node for node in int8_graph.graph.node if node.op_type == "MatMulIntegerToFloat"]
    assert len(products) == MATMULS_OF_TWO_LAYERS
    assert not {"MatMul", "Gemm"} & {node.op_type for node in int8_graph.graph.node}
    for node in products:
        weight, scale = weights[node.input[1]], numpy_helper.to_array(weights[node.input[3]])
        assert weight.data_type == onnx.TensorProto.INT8
        assert scale.shape == (weight.dims[1],)
        assert len(np.unique(scale)) > 1, "a scale for each channel, not one for all"
        assert not node.input[5], "weights are symmetric"


def test_query_key_and_value_read_one_rounded_input(int8_graph: onnx.ModelProto) -> None:
    """Per layer 4 activations are rounded for 6 products, in the head 2 for 2.

    One more in the last layer, whose query is asked for first tokens only.
    """
    rounded = [node for node in int8_graph.graph.node if node.op_type == "QuantizeLinear"]
    assert len(rounded) == 2 * 4 + 1 + 2


def test_int8_stays_close_to_pytorch(int8_graph: onnx.ModelProto) -> None:
    """Least cosine of logits over ragged rows above 0.98; not exact, or nothing was rounded."""
    model = checkpoint_of("bert classifier").encoder_model
    batch = ragged_batch((17, 2, 9, 1), model.config)
    found, wanted = GraphRunner(int8_graph)(batch), torch_outputs(model, batch)
    assert cosines(found, wanted).min() > 0.98
    assert np.abs(found - wanted).max() > 1e-4


def test_parity_records_error_and_cosine_and_neighbours_do_nothing(
    int8_graph: onnx.ModelProto, trace_of: TraceOf
) -> None:
    """Rounding costs something in int8, and a row's neighbours nothing in either."""
    model = checkpoint_of("bert classifier").encoder_model
    rounded = check_parity(model, int8_graph, MAX_TOKENS, NO_LIMIT)["logits"]
    graph = trace_of("bert classifier", "Attention")
    exact = check_parity(model, graph, MAX_TOKENS, 1e-4)["logits"]
    assert rounded.max_neighbour_effect < 1e-5
    assert exact.max_neighbour_effect < 1e-5
    assert exact.max_abs_error < 1e-5 < 1e-4 < rounded.max_abs_error
    assert 0 < rounded.mean_abs_error < rounded.max_abs_error
    assert 0.9 < rounded.min_cosine < rounded.mean_cosine < 0.99999 < exact.min_cosine
    assert set(rounded.to_dict()) == {
        "max_abs_error",
        "mean_abs_error",
        "min_cosine",
        "mean_cosine",
        "max_neighbour_effect",
    }


def test_parity_over_the_limit_is_refused_with_both_numbers(int8_graph: onnx.ModelProto) -> None:
    model = checkpoint_of("bert classifier").encoder_model
    with pytest.raises(ExportError, match=r"differ from PyTorch's by up to .*, the limit is 1e-04"):
        check_parity(model, int8_graph, MAX_TOKENS, MAX_ABS_ERROR["fp32"])


def test_parity_is_checked_for_models_that_take_one_token(trace_of: TraceOf) -> None:
    model = checkpoint_of("bert classifier").encoder_model
    check_parity(model, trace_of("bert classifier", "Attention"), 1, 1e-4)


def test_fp16_computes_in_half_and_answers_in_float32(half_graph: onnx.ModelProto) -> None:
    """Weights are float16, the output is float32 and within the limit of 5e-2."""
    model = checkpoint_of("bert classifier").encoder_model
    weights = [tensor for tensor in half_graph.graph.initializer if len(tensor.dims) == 2]
    assert {tensor.data_type for tensor in weights} == {onnx.TensorProto.FLOAT16}
    assert half_graph.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    parity = check_parity(model, half_graph, MAX_TOKENS, MAX_ABS_ERROR["fp16"])["logits"]
    assert 1e-5 < parity.max_abs_error < MAX_ABS_ERROR["fp16"]
    assert parity.min_cosine > 0.999


def test_fp16_export_leaves_the_network_in_float32(half_graph: onnx.ModelProto) -> None:
    """Nor has the network lost PyTorch's own attention."""
    model = checkpoint_of("bert classifier").encoder_model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert sum(isinstance(part, MultiHeadAttention) for part in model.modules()) == 2


def test_outputs_that_are_no_numbers_are_refused(trace_of: TraceOf) -> None:
    """NaN is not below any limit."""
    broken = onnx.ModelProto()
    broken.CopyFrom(trace_of("bert classifier", "Attention"))
    (bias,) = (tensor for tensor in broken.graph.initializer if tensor.name == "head.output.bias")
    bias.CopyFrom(numpy_helper.from_array(np.full(2, np.nan, np.float32), bias.name))
    with pytest.raises(ExportError, match="differ from PyTorch's by up to nan"):
        check_parity(checkpoint_of("bert classifier").encoder_model, broken, MAX_TOKENS, NO_LIMIT)


def test_parity_is_measured_by_the_worst_value_and_row() -> None:
    """Two rows of two values: one value is off by 0.5 and one by 0.1; neighbours change another."""
    wanted = np.array([[1.0, 0.0], [0.0, 1.0]])
    found = np.array([[1.0, 0.5], [0.0, 1.1]])
    alone = np.array([[1.0, 0.5], [0.2, 1.1]])
    parity = compare(found, wanted, alone, max_abs_error=1.0)
    assert parity.max_abs_error == pytest.approx(0.5)
    assert parity.mean_abs_error == pytest.approx(0.6 / 4)
    assert parity.min_cosine == pytest.approx(1 / 1.25**0.5)
    assert parity.mean_cosine == pytest.approx((1 / 1.25**0.5 + 1) / 2)
    assert parity.max_neighbour_effect == pytest.approx(0.2)


def test_the_cosine_of_single_values_is_of_all_rows_as_one() -> None:
    """Scores of 3 and 4, off by 1 and with another sign: row by row, cosines would be 1 and -1."""
    wanted, found = np.array([[3.0], [4.0]]), np.array([[4.0], [-4.0]])
    parity = compare(found, wanted, found, max_abs_error=10.0)
    assert parity.mean_cosine == parity.min_cosine == pytest.approx(-4 / (5 * 32**0.5))
