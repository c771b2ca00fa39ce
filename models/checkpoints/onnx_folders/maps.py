"""The weights of the maps behind a pooling, as arrays. Imports no PyTorch."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from models.checkpoints import file_names
from models.checkpoints.embedder_files import DenseStep, NormStep, Step, read_step
from models.errors import CheckpointError, reason

Arrays = Mapping[str, np.ndarray]


def read_maps(steps: Sequence[Step]) -> list[tuple[DenseStep | NormStep, Arrays]]:
    """Each map with its weights, float32. Raises `CheckpointError` where they do not fit it."""
    read = []
    for name, folder in steps:
        step = read_step(name, folder)
        if step is not None:
            arrays = _arrays(folder / file_names.WEIGHTS_FILE)
            _check(arrays, step, folder / file_names.WEIGHTS_FILE)
            read.append((step, arrays))
    return read


def _arrays(path: Path) -> Arrays:
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing: the map of vectors has its weights there, and a pickle in its "
            "place is not read for a graph in ONNX"
        )
    from safetensors.numpy import load_file  # of the extra `train`, for such folders alone

    try:
        stored = load_file(path)
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"{path} is not readable as safetensors: {reason(error)}") from error
    return {name: array.astype(np.float32) for name, array in stored.items()}


def _check(arrays: Arrays, step: DenseStep | NormStep, path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {}
    if isinstance(step, NormStep):
        shapes = {"norm.weight": (step.size,), "norm.bias": (step.size,)}
    else:
        shapes["linear.weight"] = (step.output_size, step.input_size)
        if step.bias:
            shapes["linear.bias"] = (step.output_size,)
        if step.has_residual and step.input_size != step.output_size:
            shapes["residual.weight"] = (step.output_size, step.input_size)
    found = {name: array.shape for name, array in arrays.items()}
    if found != shapes:
        raise CheckpointError(f"{path} has {found}, but must have {shapes}")
