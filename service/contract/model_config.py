"""`config.pbtxt`: parse it, and refuse what is not implemented.

The format is Triton's `inference.ModelConfig` in protobuf text form. A field without
effect is refused by its name, so that no setting is believed to do what it does not.
Knows nothing of files, sessions or requests.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf import json_format, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.config_checks import MAX_CONFIG_BYTES, check_values
from service.contract.option_rules import MAX_SHOWN
from service.contract.session_tuning import PARAMETERS as SESSION_PARAMETERS
from service.contract.warmup_samples import warmup_samples
from service.errors import LoadError

PLATFORM = "onnxruntime_onnx"
BACKEND = "onnxruntime"
MAX_ERROR = 500  # characters of a parser's message
MAX_JSON_DEPTH = 16  # of a configuration; Triton's own has 6

_SUPPORTED = frozenset(
    (  # noqa: SIM905 - in quotes of their own these names take a line each
        "name platform backend max_batch_size default_model_filename parameters "
        "input.name input.data_type input.format input.dims input.reshape.shape input.optional "
        "output.name output.data_type output.dims output.reshape.shape output.label_filename "
        "dynamic_batching.preferred_batch_size dynamic_batching.max_queue_delay_microseconds "
        "dynamic_batching.priority_levels dynamic_batching.default_priority_level "
        "dynamic_batching.default_queue_policy dynamic_batching.priority_queue_policy "
        "instance_group.name instance_group.count instance_group.kind instance_group.gpus "
        "version_policy.latest.num_versions version_policy.all version_policy.specific.versions "
        "model_transaction_policy.decoupled response_cache.enable "
        "model_warmup.name model_warmup.batch_size model_warmup.count "
        "model_warmup.inputs.data_type model_warmup.inputs.dims model_warmup.inputs.zero_data "
        "model_warmup.inputs.random_data model_warmup.inputs.input_data_file "
        "optimization.graph.level "
        "optimization.execution_accelerators.gpu_execution_accelerator.name "
        "optimization.execution_accelerators.gpu_execution_accelerator.parameters "
        "optimization.execution_accelerators.cpu_execution_accelerator.name "
        "optimization.execution_accelerators.cpu_execution_accelerator.parameters "
        # These tune how Triton moves memory, which we have no counterpart of.
        "optimization.priority optimization.input_pinned_memory optimization.output_pinned_memory "
        "optimization.gather_kernel_buffer_threshold optimization.eager_batching"
    ).split()
)
# What a field that is refused would do, where its name does not say it.
_REASONS = {
    "model_operations": "operators of libraries are other people's code in this process",
}
# Whole numbers of at least 1; each overrides the setting of the same name for one model.
PARAMETERS = (
    "max_batch_tokens",
    "max_queue_rows",
    "max_queue_tokens",
    "batch_overhead_tokens",
    "max_running_sequences",
    "max_draft_tokens",
    "max_prefill_tokens",
    "max_context_tokens",
    "kv_cache_bytes",
    "prefix_cache_bytes",
)


def parse_config(text: str, directory_name: str) -> ModelConfig:
    """Read a configuration, or raise `LoadError` naming the line or field that is wrong."""
    config = ModelConfig()
    _check_length(text)
    try:
        text_format.Parse(text, config)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise LoadError(f"config.pbtxt: {_shown(error)}") from error
    return _checked(config, directory_name)


def parse_config_json(text: str, model_name: str) -> ModelConfig:
    """The configuration of a model given as JSON, which is how clients send it."""
    config = ModelConfig()
    _check_length(text)
    try:
        json_format.Parse(text, config, max_recursion_depth=MAX_JSON_DEPTH)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise LoadError(f"config: {_shown(error)}") from error
    return _checked(config, model_name)


def _shown(error: Exception) -> str:
    """A library's error text, without the whole of the unreadable input."""
    text = str(error).encode(errors="backslashreplace").decode()
    return text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]}..."


def _check_length(text: str) -> None:
    if len(text) > MAX_CONFIG_BYTES:
        raise LoadError(
            f"config.pbtxt: {len(text)} characters, expected at most {MAX_CONFIG_BYTES}"
        )


def _checked(config: ModelConfig, model_name: str) -> ModelConfig:
    if config.name not in ("", model_name):
        raise LoadError(
            f"config.pbtxt: name is '{config.name[:MAX_SHOWN]}', "
            f"but the model's folder is '{model_name}'"
        )
    config.name = model_name
    _refuse_unsupported(config)
    _check_platform(config)
    check_values(config)
    warmup_samples(config)
    return config


def versions_to_serve(config: ModelConfig, present: list[int]) -> list[int]:
    """The version folders that the policy selects; by default the highest one."""
    ordered = sorted(present)
    policy = config.version_policy
    if policy.HasField("all"):
        return ordered
    if policy.HasField("specific"):
        selected = set(policy.specific.versions)
        return [version for version in ordered if version in selected]
    return ordered[-max(1, policy.latest.num_versions) :]


def parameter(config: ModelConfig, name: str, default: int) -> int:
    """A whole-number parameter of this model, or the server's setting."""
    assert name in PARAMETERS or name in SESSION_PARAMETERS
    if name not in config.parameters:
        return default
    return int(config.parameters[name].string_value)


def _refuse_unsupported(message: Message, prefix: str = "") -> None:
    """Walk every field that is set; a message is known where one of its fields is."""
    for field, value in message.ListFields():
        path = prefix + field.name
        if path == "parameters":
            _check_parameters(message)
        elif any(known.startswith(f"{path}.") for known in _SUPPORTED):
            for child in _children(field, value):
                _refuse_unsupported(child, f"{path}.")
        elif path not in _SUPPORTED:
            reason = f": {_REASONS[path]}" if path in _REASONS else ""
            raise LoadError(f"config.pbtxt: {path} is not supported by this server{reason}")


def _children(field: FieldDescriptor, value: Any) -> Iterable[Message]:  # noqa: ANN401
    """The messages in a field that has some."""
    if not field.is_repeated:
        return [value]
    is_map = field.message_type.GetOptions().map_entry
    children: Iterable[Message] = value.values() if is_map else value
    return children


def _check_parameters(config: ModelConfig) -> None:
    for key, value in config.parameters.items():
        if key not in PARAMETERS and key not in SESSION_PARAMETERS:
            raise LoadError(
                f"config.pbtxt: parameter '{key[:MAX_SHOWN]}' is not supported by this server; "
                f"it knows {', '.join((*PARAMETERS, *SESSION_PARAMETERS))}"
            )
        text = value.string_value
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(2**63))
        if key in PARAMETERS and not (is_number and 1 <= int(text) < 2**63):
            raise LoadError(
                f"config.pbtxt: parameter '{key}' is '{text[:MAX_SHOWN]}', "
                "expected a whole number of at least 1 and less than 2^63"
            )


def _check_platform(config: ModelConfig) -> None:
    if config.platform not in ("", PLATFORM) or config.backend not in ("", BACKEND):
        raise LoadError(
            f"config.pbtxt: platform '{config.platform[:MAX_SHOWN]}' with backend "
            f"'{config.backend[:MAX_SHOWN]}', this server runs platform '{PLATFORM}', "
            f"backend '{BACKEND}'"
        )
