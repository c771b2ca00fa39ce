"""From a checkpoint to a model repository: ONNX with fused attention, checked and counted."""
