"""8-bit products in float32 are those of the integers, also where a processor would saturate."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.graphs.exact_products import has_saturating_products, with_exact_products
from service.runtime.session import OnnxSession, SessionOptions

ROWS, K, N = 3, 64, 5
RANDOM = np.random.default_rng(0)
LEFT_RK = RANDOM.integers(200, 256, (ROWS, K)).astype(np.uint8)  # pairs are beyond 16 bits
RIGHT_KN = RANDOM.integers(100, 128, (K, N)).astype(np.int8)
SCALE_N = RANDOM.random(N, np.float32)
BIAS_N = RANDOM.random(N, np.float32)
ZERO = 3


def model_of(*, has_bias: bool, type_: int) -> onnx.ModelProto:
    zero = np.asarray(ZERO, np.uint8 if type_ == TensorProto.UINT8 else np.int8)
    weights: dict[str, np.ndarray] = {
        "right": RIGHT_KN,
        "left.scale": np.asarray(0.5, np.float32),
        "right.scale": SCALE_N,
        "left.zero": zero,
        "bias": BIAS_N,
    }
    inputs = ["left", "right", "left.scale", "right.scale", "left.zero"]
    inputs += ["", "bias"] if has_bias else []
    node = helper.make_node("MatMulIntegerToFloat", inputs, ["y"], "p", domain="com.microsoft")
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("left", type_, [None, K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, N])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    domains = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("type_", [TensorProto.UINT8, TensorProto.INT8])
def test_products_are_those_of_the_integers(has_bias: bool, type_: int) -> None:
    model = model_of(has_bias=has_bias, type_=type_)
    exact = with_exact_products(model)
    assert has_saturating_products(model)
    assert not has_saturating_products(exact)
    left = LEFT_RK if type_ == TensorProto.UINT8 else (LEFT_RK // 2).astype(np.int8)
    session = OnnxSession(exact.SerializeToString(), SessionOptions(num_threads=1))
    (found,) = session.run({"left": left}, ["y"])
    sums = (left.astype(np.int64) - ZERO) @ RIGHT_KN.astype(np.int64)
    wanted = sums * 0.5 * SCALE_N + (BIAS_N if has_bias else 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
