"""From PyTorch to ONNX graphs."""
