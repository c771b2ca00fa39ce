"""The server: reads a model repository and answers over gRPC. Runs without torch."""

from importlib.metadata import version

__version__ = version("attendant")
