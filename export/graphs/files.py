"""Graphs as files: checked, and written with their weights beside them where they are large.

ONNX's format is a protobuf message, which holds 2 GiB. Knows nothing of what a graph computes.
"""

from pathlib import Path

import onnx

MAX_MESSAGE_BYTES = 2**31 - 1  # protobuf's limit
WEIGHTS_SUFFIX = ".weights"  # of the file beside a graph that is larger


def check(model: onnx.ModelProto) -> None:
    """Raise an error of onnx for a graph that is against the format.

    A graph that no protobuf message holds cannot be checked in memory.
    """
    if model.ByteSize() <= MAX_MESSAGE_BYTES:
        onnx.checker.check_model(model)


def save(model: onnx.ModelProto, path: Path, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
    """Write a graph; the weights of one that is larger go into a file beside it.

    Its own tensors are then empty.
    """
    if model.ByteSize() <= max_bytes:
        onnx.save(model, path)
        return
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}{WEIGHTS_SUFFIX}")
