"""The tracer's table of operators is made once, and is the one that torch makes."""

from torch.onnx._internal.exporter._registration import ONNXRegistry

from export.graphs.operators import kept_operators


def test_a_table_is_made_once_and_has_what_torch_s_own_has() -> None:
    with kept_operators():
        kept = ONNXRegistry.from_torchlib()
        assert ONNXRegistry.from_torchlib() is kept
        assert ONNXRegistry.from_torchlib(opset_version=24) is not kept
    own = ONNXRegistry.from_torchlib()
    assert own is not kept
    assert own.opset_version == kept.opset_version
    assert {target: len(found) for target, found in own.functions.items()} == {
        target: len(found) for target, found in kept.functions.items()
    }
