"""8-bit products as float32 computes them, for a processor that would saturate.

AVX2 without VNNI adds pairs of products in 16 bits, where large ones are cut off. A server takes no
int8 graph there, but an export may be made there, and what it measures must be what the graph gives
where it will be served: docs/explanation/decisions/0016-scales-found-at-export.md. Integers below
2**24 are exact in float32, and larger sums are rounded in the seventh digit.
"""

from collections.abc import Iterator

import onnx
from onnx import NodeProto, TensorProto, helper

from export.graphs.files import copy_of

SATURATING = "MatMulIntegerToFloat"  # of what is exported; MatMulNBits adds in 32 bits


def has_saturating_products(model: onnx.ModelProto) -> bool:
    """Whether a product is of 8-bit activations and 8-bit weights."""
    return any(node.op_type == SATURATING for node in model.graph.node)


def with_exact_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose 8-bit integers are multiplied and added as float32."""
    copied = copy_of(model)
    nodes = [new for node in copied.graph.node for new in _exact(node)]
    del copied.graph.node[:]
    copied.graph.node.extend(nodes)
    return copied


def _exact(node: NodeProto) -> Iterator[NodeProto]:
    if node.op_type != SATURATING:
        yield node
        return
    given = [*node.input, *[""] * (7 - len(node.input))]
    left, right, left_scale, right_scale, left_zero, right_zero, bias = given
    result = node.output[0]

    def step(operator: str, inputs: list[str], part: str) -> NodeProto:
        output = f"{result}.{part}" if part else result
        return helper.make_node(operator, inputs, [output], output)

    products = []
    for value, zero, side in ((left, left_zero, "left"), (right, right_zero, "right")):
        products.append(f"{result}.{side}")
        for integer, part in ((value, side), (zero, f"{side}.zero")):
            if integer:
                cast = step("Cast", [integer], part)
                cast.attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
                yield cast
        if zero:
            yield step("Sub", [f"{result}.{side}", f"{result}.{side}.zero"], f"{side}.centred")
            products[-1] = f"{result}.{side}.centred"
    yield step("MatMul", products, "sums")
    yield step("Mul", [left_scale, right_scale], "scale")
    scaled = [f"{result}.sums", f"{result}.scale"]
    yield step("Mul", scaled, "scaled" if bias else "")
    if bias:
        yield step("Add", [f"{result}.scaled", bias], "")
