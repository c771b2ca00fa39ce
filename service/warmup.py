"""Run a model with made-up requests before anybody's, as its configuration says.

The first run of a shape allocates memory and may choose kernels; `model_warmup` has that done
while the model loads. Samples are what a client would send, so that whatever the model does
before and after the graph is done too. Runs on the thread that loads.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import numpy as np
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelWarmup

from service.config_checks import check_dims, check_file_name
from service.config_files import read_bytes
from service.datatypes import BF16, BYTES, strings_from_raw
from service.errors import AttendantError, InvalidArgument, LoadError
from service.model_config import signature_of
from service.request import Arrays
from service.runtime import RunStop
from service.signature import TensorSpec

WARMUP_FOLDER = "warmup"  # of a model, where `input_data_file` is looked for
MAX_SAMPLES = 64
MAX_RUNS = 1_000  # of one sample
MAX_SAMPLE_S = 600.0  # for them; a first run may build what later ones use, for minutes
MAX_SAMPLE_BYTES = 256 * 2**20  # of its inputs, all rows together
BYTES_SIZE = 64  # of one element of BYTES, reckoned for that bound
ANY_WHOLE = 128  # random whole numbers are less: ids that most vocabularies have
SEED = 0  # a model warms up with the same numbers every time


@dataclass(frozen=True, slots=True)
class Sample:
    """One request to make, `count` times; `inputs` are as a client sends them."""

    name: str
    count: int
    inputs: Arrays


def warm_up(
    config: ModelConfig,
    folder: Path,
    run: Callable[[Arrays, RunStop], object],
    max_s: float = MAX_SAMPLE_S,
) -> None:
    """Run every sample of a completed configuration, or raise `LoadError` with its name.

    Runs of one sample that last longer than `max_s` are stopped.
    """
    for sample in read_samples(config, folder):
        stopping = RunStop()
        alarm = Timer(max_s, stopping.stop)
        alarm.daemon = True
        alarm.start()
        try:
            for _ in range(sample.count):
                run(sample.inputs, stopping)
        except AttendantError as error:
            reason = f"it lasted longer than {max_s} s" if stopping.is_stopped else str(error)
            raise LoadError(f"model_warmup '{sample.name}' failed: {reason}") from error
        finally:
            alarm.cancel()


def read_samples(config: ModelConfig, folder: Path) -> Iterator[Sample]:
    """The samples one by one, or `LoadError` for the first that is wrong."""
    if len(config.model_warmup) > MAX_SAMPLES:
        raise LoadError(
            f"config.pbtxt: {len(config.model_warmup)} model_warmup, expected at most {MAX_SAMPLES}"
        )
    specs = {spec.name: spec for spec in signature_of(config).inputs}
    for warmup in config.model_warmup:
        sample = f"config.pbtxt: model_warmup '{warmup.name}'"
        most = max(1, config.max_batch_size)
        if not 1 <= warmup.batch_size <= most:
            raise LoadError(f"{sample} has batch_size {warmup.batch_size}, expected 1 to {most}")
        if warmup.count > MAX_RUNS:
            raise LoadError(f"{sample} has count {warmup.count}, expected at most {MAX_RUNS}")
        needed = {name for name, spec in specs.items() if not spec.is_optional}
        if not needed <= set(warmup.inputs) <= set(specs):
            raise LoadError(
                f"{sample} has inputs {sorted(warmup.inputs)}, but the model takes {sorted(specs)}"
            )
        rows = (warmup.batch_size,) if config.max_batch_size else ()
        inputs: dict[str, np.ndarray] = {}
        left = MAX_SAMPLE_BYTES
        for name, stated in sorted(warmup.inputs.items()):
            shape = _checked_shape(f"{sample}: input '{name}'", stated, specs[name])
            left -= int(np.prod((*rows, *shape), dtype=object)) * _element_size(specs[name])
            if left < 0:
                raise LoadError(f"{sample} has more than {MAX_SAMPLE_BYTES} bytes of inputs")
            row = _row(f"{sample}: input '{name}'", stated, specs[name], shape, folder)
            inputs[name] = np.broadcast_to(row, (*rows, *shape)).copy()
        yield Sample(warmup.name, max(1, warmup.count), inputs)


def _checked_shape(path: str, stated: ModelWarmup.Input, spec: TensorSpec) -> tuple[int, ...]:
    """The shape of one row, which the model must take."""
    data_type = DataType.Name(stated.data_type)
    if data_type != spec.datatype.config_name:
        raise LoadError(f"{path} is {data_type}, but the model takes {spec.datatype.config_name}")
    check_dims(path.removeprefix("config.pbtxt: "), stated.dims, can_be_free=False)
    dims = tuple(stated.dims)
    fits = len(dims) == len(spec.dims) and all(
        want in (-1, have) for want, have in zip(spec.dims, dims, strict=True)
    )
    if not fits:
        raise LoadError(f"{path} has dims {list(dims)}, but the model takes {list(spec.dims)}")
    return dims


def _element_size(spec: TensorSpec) -> int:
    return BYTES_SIZE if spec.datatype.name == BYTES else spec.datatype.dtype.itemsize


def _row(
    path: str, stated: ModelWarmup.Input, spec: TensorSpec, shape: tuple[int, ...], folder: Path
) -> np.ndarray:
    source = stated.WhichOneof("input_data_type")
    if source == "input_data_file":
        check_file_name(
            f"{path.removeprefix('config.pbtxt: ')}: input_data_file", stated.input_data_file
        )
        content = read_bytes(folder / WARMUP_FOLDER / stated.input_data_file, MAX_SAMPLE_BYTES)
        return _from_file(path, content, spec, shape)
    if source is None:
        raise LoadError(f"{path} has none of zero_data, random_data and input_data_file")
    if spec.datatype.name == BYTES:  # as in Triton, where random strings are empty ones too
        return np.full(shape, b"", object)
    if source == "zero_data":
        return np.zeros(shape, spec.datatype.dtype)
    random = np.random.default_rng(SEED)
    if spec.datatype.dtype.kind == "f":
        return random.random(shape).astype(spec.datatype.dtype)
    if spec.datatype.name == BF16:  # the upper half of a float's bits
        return (random.random(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    below = 2 if spec.datatype.dtype.kind == "b" else ANY_WHOLE
    return random.integers(below, size=shape).astype(spec.datatype.dtype)


def _from_file(path: str, content: bytes, spec: TensorSpec, shape: tuple[int, ...]) -> np.ndarray:
    """One row, in the bytes of the protocol."""
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
