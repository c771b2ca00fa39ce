"""Networks in PyTorch, from word vectors and LSTMs to BERT, GPT and ViT; training, checkpoints.

Knows nothing about ONNX, gRPC or serving. Importing this package imports no PyTorch, so that the
command line can list `train` and `import` where only the server is installed.
"""
