"""Transformer encoders in PyTorch: attention, checkpoints and fine-tuning.

Knows nothing about ONNX, gRPC or serving. Importing this package imports no PyTorch, so that the
command line can list `train` and `import` where only the server is installed.
"""
