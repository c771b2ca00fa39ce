"""The server: reads a model repository and answers over gRPC. Runs without torch."""

__version__ = "0.1.0"
