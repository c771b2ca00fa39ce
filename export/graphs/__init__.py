"""From PyTorch to ONNX graphs: fused attention, caches, recurrent networks."""
