"""Warm up a model with sample requests before it serves, as its configuration says.

The first run of a shape allocates memory and may choose kernels; `model_warmup` moves that into
the load. Samples are requests as a client sends them, so that the model's work before and after
the graph is warmed up too. Runs on the thread that loads.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer

import numpy as np

from service.contract.files import read_bytes
from service.contract.interface import ModelInterface
from service.contract.tensors import BF16, BYTES, Arrays, TensorSpec, strings_from_raw
from service.contract.warmup_samples import SampleInput, WarmupSample
from service.errors import AttendantError, InvalidArgument, LoadError
from service.runtime.session import RunStop

WARMUP_FOLDER = "warmup"  # of a model, where `input_data_file` is looked for
MAX_SAMPLE_S = 600.0  # for its runs; a first run may build what later ones use, for minutes
MAX_SAMPLE_BYTES = 256 * 2**20  # of its inputs, all rows together
BYTES_SIZE = 64  # of one element of BYTES, reckoned for that bound
ANY_WHOLE = 128  # random whole numbers are less: ids that most vocabularies have
SEED = 0  # a model warms up with the same numbers every time


def warm_up(
    samples: Sequence[WarmupSample],
    interface: ModelInterface,
    folder: Path,
    run: Callable[[Arrays, RunStop], object],
    max_s: float = MAX_SAMPLE_S,
) -> None:
    """Run every sample of a model, or raise `LoadError` with its name.

    Runs of one sample that last longer than `max_s` are stopped.
    """
    for sample in samples:
        inputs = sample_inputs(sample, interface, folder)
        stopping = RunStop()
        alarm = Timer(max_s, stopping.stop)
        alarm.daemon = True
        alarm.start()
        try:
            for _ in range(sample.count):
                run(inputs, stopping)
        except AttendantError as error:
            reason = f"it lasted longer than {max_s} s" if stopping.is_stopped else str(error)
            raise LoadError(f"model_warmup '{sample.name}' failed: {reason}") from error
        finally:
            alarm.cancel()


def sample_inputs(sample: WarmupSample, interface: ModelInterface, folder: Path) -> Arrays:
    """The tensors of a sample as a client sends them, or `LoadError` where they do not fit."""
    path = f"config.pbtxt: model_warmup '{sample.name}'"
    most = max(1, interface.max_batch_size)
    if not 1 <= sample.batch_size <= most:
        raise LoadError(f"{path} has batch_size {sample.batch_size}, expected 1 to {most}")
    specs = {spec.name: spec for spec in interface.signature.inputs}
    needed = {name for name, spec in specs.items() if not spec.is_optional}
    if not needed <= set(sample.inputs) <= set(specs):
        raise LoadError(
            f"{path} has inputs {sorted(sample.inputs)}, but the model takes {sorted(specs)}"
        )
    rows = (sample.batch_size,) if interface.has_rows else ()
    inputs: dict[str, np.ndarray] = {}
    left = MAX_SAMPLE_BYTES
    for name, stated in sample.inputs.items():
        spec, shape = specs[name], (*rows, *stated.dims)
        _check_fits(f"{path}: input '{name}'", stated, spec)
        left -= int(np.prod(shape, dtype=object)) * _element_size(spec)
        if left < 0:
            raise LoadError(f"{path} has more than {MAX_SAMPLE_BYTES} bytes of inputs")
        row = _row(f"{path}: input '{name}'", stated, spec, folder)
        inputs[name] = np.broadcast_to(row, shape).copy()
    return inputs


def _check_fits(path: str, stated: SampleInput, spec: TensorSpec) -> None:
    expected = spec.datatype.config_name
    if stated.data_type != expected:
        raise LoadError(f"{path} is {stated.data_type}, but the model takes {expected}")
    fits = len(stated.dims) == len(spec.dims) and all(
        want in (-1, have) for want, have in zip(spec.dims, stated.dims, strict=True)
    )
    if not fits:
        raise LoadError(
            f"{path} has dims {list(stated.dims)}, but the model takes {list(spec.dims)}"
        )


def _element_size(spec: TensorSpec) -> int:
    return BYTES_SIZE if spec.datatype.name == BYTES else spec.datatype.dtype.itemsize


def _row(path: str, stated: SampleInput, spec: TensorSpec, folder: Path) -> np.ndarray:
    shape = stated.dims
    if stated.filename is not None:
        return _from_file(path, folder / WARMUP_FOLDER / stated.filename, spec, shape)
    if spec.datatype.name == BYTES:  # as in Triton, where random strings are empty ones too
        return np.full(shape, b"", object)
    if not stated.is_random:
        return np.zeros(shape, spec.datatype.dtype)
    random = np.random.default_rng(SEED)
    if spec.datatype.dtype.kind == "f":
        return random.random(shape).astype(spec.datatype.dtype)
    if spec.datatype.name == BF16:  # the upper half of a float's bits
        return (random.random(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    below = 2 if spec.datatype.dtype.kind == "b" else ANY_WHOLE
    return random.integers(below, size=shape).astype(spec.datatype.dtype)


def _from_file(path: str, file: Path, spec: TensorSpec, shape: tuple[int, ...]) -> np.ndarray:
    """One row, in the bytes of the protocol."""
    content = read_bytes(file, MAX_SAMPLE_BYTES)
    num_elements = int(np.prod(shape, dtype=np.int64))
    if spec.datatype.name == BYTES:
        row = np.empty(num_elements, object)
        try:
            row[:] = strings_from_raw(content, num_elements, spec.name, "")
        except InvalidArgument as error:
            raise LoadError(f"{path}: {error}") from error
        return row.reshape(shape)
    num_bytes = num_elements * spec.datatype.dtype.itemsize
    if len(content) != num_bytes:
        raise LoadError(f"{path}: its file has {len(content)} bytes, expected {num_bytes}")
    return np.frombuffer(content, spec.datatype.dtype).reshape(shape)
