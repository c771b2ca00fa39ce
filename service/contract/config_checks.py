"""The values that fields of `config.pbtxt` may have.

Every number that later costs memory or time is bounded here. `model_config.py` decides which
fields have an effect. Knows nothing of files.
"""

import math
from collections.abc import Sequence

from tritonclient.grpc.model_config_pb2 import (
    ModelConfig,
    ModelInput,
    ModelInstanceGroup,
    ModelOutput,
    ModelQueuePolicy,
)

from service.contract.option_rules import MAX_SHOWN
from service.contract.session_tuning import RUN_ENTRIES, session_tuning
from service.contract.tensors import can_reshape
from service.errors import LoadError

MAX_CONFIG_BYTES = 2**20  # of a configuration
MAX_BATCH_SIZE = 65_536  # rows
MAX_PREFERRED = 64  # sizes of batches, each looked at per batch
MAX_INSTANCES = 64  # runs at once of one model, a thread each
MAX_DIMS = 32  # of one tensor
IMAGE_DIMS = 3  # of NHWC and NCHW without N
MAX_ELEMENTS = 2**63 - 1  # of one tensor, where it says how many
MAX_TENSORS = 1_024  # inputs, and as many outputs
MAX_TENSOR_NAME = 1_024  # characters
MAX_FILE_NAME = 255  # bytes, as file systems have it


def check_values(config: ModelConfig) -> None:
    """Raise `LoadError` with field, value and limit for the first value that is wrong."""
    if not 0 <= config.max_batch_size <= MAX_BATCH_SIZE:
        raise LoadError(
            f"config.pbtxt: max_batch_size is {config.max_batch_size}, expected >= 0 and at most "
            f"{MAX_BATCH_SIZE}"
        )
    num_preferred = len(config.dynamic_batching.preferred_batch_size)
    if num_preferred > MAX_PREFERRED:
        raise LoadError(
            f"config.pbtxt: dynamic_batching.preferred_batch_size has {num_preferred} sizes, "
            f"expected at most {MAX_PREFERRED}"
        )
    check_file_name("default_model_filename", config.default_model_filename)
    for output in config.output:
        check_file_name("output.label_filename", output.label_filename)
    for side, tensors in (("input", config.input), ("output", config.output)):
        _check_names(side, [tensor.name for tensor in tensors])
        for tensor in tensors:
            _check_tensor(side, tensor)
    _check_groups(config.instance_group)
    session_tuning(config)


def check_generative(config: ModelConfig) -> None:
    """Refuse what a model that generates step by step has no use for, by its name."""
    batching = config.dynamic_batching
    for name in (
        "preferred_batch_size",
        "max_queue_delay_microseconds",
        "priority_levels",
        "default_priority_level",
        "priority_queue_policy",
    ):
        if getattr(batching, name):
            raise LoadError(
                f"config.pbtxt: dynamic_batching.{name} is set, but sequences of a generative "
                "model join and leave between steps: it has no effect"
            )
    if batching.default_queue_policy.timeout_action == ModelQueuePolicy.DELAY:
        raise LoadError(
            "config.pbtxt: dynamic_batching.default_queue_policy.timeout_action is DELAY, "
            "a generative model knows REJECT only"
        )
    if config.response_cache.enable:
        raise LoadError(
            "config.pbtxt: response_cache is not supported for generative models by this server"
        )
    if config.model_warmup:
        raise LoadError(
            "config.pbtxt: model_warmup is not supported for generative models by this server"
        )
    for name in RUN_ENTRIES:
        if name in config.parameters:
            raise LoadError(
                f"config.pbtxt: parameter '{name}' has no effect on a generative model, whose runs "
                "take their memory from the cache"
            )
    for group in config.instance_group:
        if group.count > 1:
            raise LoadError(
                f"config.pbtxt: instance_group.count is {group.count}, expected 1: a generative "
                "model runs one step at a time, with all its sequences"
            )


def check_file_name(path: str, name: str) -> None:
    """Refuse what is not a plain name of a file in the folder where it is looked for."""
    if "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
        raise LoadError(
            f"config.pbtxt: {path} is '{name[:MAX_SHOWN]}', expected a file's name without a path"
        )
    if len(name.encode()) > MAX_FILE_NAME:
        raise LoadError(
            f"config.pbtxt: {path} has {len(name.encode())} bytes, expected at most {MAX_FILE_NAME}"
        )


def check_dims(path: str, dims: Sequence[int], *, can_be_free: bool) -> None:
    """Refuse dimensions that no tensor can have."""
    if len(dims) > MAX_DIMS:
        raise LoadError(f"config.pbtxt: {path} has {len(dims)} dims, expected at most {MAX_DIMS}")
    for dim in dims:
        if dim < 1 and not (can_be_free and dim == -1):
            free = ", or -1 for a free one" if can_be_free else ""
            raise LoadError(f"config.pbtxt: {path} has the dim {dim}, expected at least 1{free}")
    num_elements = math.prod(dim for dim in dims if dim != -1)
    if num_elements > MAX_ELEMENTS:
        raise LoadError(
            f"config.pbtxt: {path} has {num_elements} elements, expected at most {MAX_ELEMENTS}"
        )


def _check_names(side: str, names: Sequence[str]) -> None:
    if len(names) > MAX_TENSORS:
        raise LoadError(f"config.pbtxt: {len(names)} {side}s, expected at most {MAX_TENSORS}")
    for place, name in enumerate(names):
        if not name:
            raise LoadError(f"config.pbtxt: {side} {place} has no name")
        if len(name) > MAX_TENSOR_NAME:
            raise LoadError(
                f"config.pbtxt: the name of {side} {place} has {len(name)} characters, "
                f"expected at most {MAX_TENSOR_NAME}"
            )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LoadError(f"config.pbtxt: {side} '{twice[0]}' is there more than once")


def _check_tensor(side: str, tensor: ModelInput | ModelOutput) -> None:
    path = f"{side} '{tensor.name}'"
    if not tensor.dims:
        raise LoadError(f"config.pbtxt: {path} has no dims; those of a scalar are [1]")
    check_dims(path, tensor.dims, can_be_free=True)
    # Tells clients how to lay out an image; the server takes the tensor as it comes.
    if isinstance(tensor, ModelInput) and tensor.format and len(tensor.dims) != IMAGE_DIMS:
        raise LoadError(
            f"config.pbtxt: {path} has a format and {len(tensor.dims)} dims, expected {IMAGE_DIMS}"
        )
    if not tensor.HasField("reshape"):
        return
    shape = tensor.reshape.shape
    check_dims(f"{path} reshape", shape, can_be_free=True)
    if not can_reshape(tensor.dims, shape):
        raise LoadError(
            f"config.pbtxt: {path} has different size for dims and reshape: {list(tensor.dims)} "
            f"and {list(shape)}"
        )


def _check_groups(groups: Sequence[ModelInstanceGroup]) -> None:
    for group in groups:
        if group.kind == group.KIND_MODEL:
            raise LoadError("config.pbtxt: instance_group.kind KIND_MODEL is not supported")
        if len(group.gpus) > 1:
            raise LoadError(
                f"config.pbtxt: instance_group.gpus is {list(group.gpus)}, one is supported"
            )
        if group.gpus and (group.kind == group.KIND_CPU or group.gpus[0] < 0):
            raise LoadError(
                f"config.pbtxt: instance_group.gpus is {list(group.gpus)}, "
                "expected none for KIND_CPU, and else a number of at least 0"
            )
        if not 0 <= group.count <= MAX_INSTANCES:
            raise LoadError(
                f"config.pbtxt: instance_group.count is {group.count}, expected >= 1 and at most "
                f"{MAX_INSTANCES}"
            )
        if (group.kind, *group.gpus) != (groups[0].kind, *groups[0].gpus):
            raise LoadError(
                "config.pbtxt: instance_group: groups of one kind and place are "
                "supported, not several"
            )
    total = sum(group.count for group in groups)
    if total > MAX_INSTANCES:
        raise LoadError(
            f"config.pbtxt: instance_group: {total} instances in all, "
            f"expected at most {MAX_INSTANCES}"
        )
