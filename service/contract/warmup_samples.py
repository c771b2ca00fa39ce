"""`model_warmup` of `config.pbtxt`: which requests a model is to run while it loads.

Checked as far as the configuration alone can tell; whether they fit the model is seen when they
are made. Knows nothing of files, arrays or sessions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelWarmup

from service.contract.config_checks import check_dims, check_file_name
from service.errors import LoadError

MAX_SAMPLES = 64
MAX_RUNS = 1_000  # of one sample


@dataclass(frozen=True, slots=True)
class SampleInput:
    """One tensor of a sample, and where its values come from."""

    data_type: str  # as in config.pbtxt
    dims: tuple[int, ...]  # of one row
    is_random: bool = False  # otherwise zeros, or what the file has
    filename: str | None = None


@dataclass(frozen=True, slots=True)
class WarmupSample:
    """One request, to be run `count` times with `batch_size` equal rows."""

    name: str
    count: int
    batch_size: int
    inputs: Mapping[str, SampleInput]


def warmup_samples(config: ModelConfig) -> tuple[WarmupSample, ...]:
    """The samples of a configuration, or `LoadError` for the first that is wrong."""
    if len(config.model_warmup) > MAX_SAMPLES:
        raise LoadError(
            f"config.pbtxt: {len(config.model_warmup)} model_warmup, expected at most {MAX_SAMPLES}"
        )
    return tuple(map(_sample, config.model_warmup))


def _sample(warmup: ModelWarmup) -> WarmupSample:
    path = f"model_warmup '{warmup.name}'"
    if warmup.count > MAX_RUNS:
        raise LoadError(
            f"config.pbtxt: {path} has count {warmup.count}, expected at most {MAX_RUNS}"
        )
    inputs = {
        name: _input(f"{path}: input '{name}'", stated)
        for name, stated in sorted(warmup.inputs.items())
    }
    return WarmupSample(warmup.name, max(1, warmup.count), warmup.batch_size, inputs)


def _input(path: str, stated: ModelWarmup.Input) -> SampleInput:
    check_dims(path, stated.dims, can_be_free=False)
    source = stated.WhichOneof("input_data_type")
    if source is None:
        raise LoadError(
            f"config.pbtxt: {path} has none of zero_data, random_data and input_data_file"
        )
    filename = stated.input_data_file if source == "input_data_file" else None
    if filename is not None:
        check_file_name(f"{path}: input_data_file", filename)
    data_type = DataType.Name(stated.data_type)
    return SampleInput(data_type, tuple(stated.dims), source == "random_data", filename)
