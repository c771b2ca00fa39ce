"""Dynamic int8: weights to 8 bits once, activations at run time.

Weights are quantised per output channel. An activation's scale is per tensor, so a
row's rounding depends a little on its neighbours in the batch; what that costs is
measured by the parity check and kept in the manifest.
"""

import tempfile
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from export.errors import ExportError


def quantize_int8(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` whose matrix products with weights are int8.

    Only MatMul and Gemm are named: the quantiser takes ONNX's Attention for the contrib
    operator of the same name, and would break it.
    """
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    # The quantiser asks for its own shape inference first, which fused nodes stop.
    note = copied.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        quantize_dynamic(
            copied,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
        quantized = onnx.load(path)
    weights = {tensor.name for tensor in quantized.graph.initializer}
    left = [
        node.name
        for node in quantized.graph.node
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights
    ]
    if left:
        raise ExportError(f"{len(left)} matrix products with weights stayed float: {left[:3]}")
    for kept in [prop for prop in quantized.metadata_props if prop.key == note.key]:
        quantized.metadata_props.remove(kept)
    quantized.producer_name, quantized.producer_version = "attendant", ""
    return quantized
