"""`config.pbtxt`: parse it, refuse what is not implemented, complete it from manifest or graph.

The format is Triton's `inference.ModelConfig` in protobuf text form. A field without
effect is refused by its name, so that no setting is believed to do what it does not.
A configuration is not changed once it is parsed: completing gives a new one. Knows
nothing of files, sessions or requests.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from google.protobuf import json_format, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInput, ModelOutput

from service.config_checks import MAX_CONFIG_BYTES, check_values
from service.datatypes import BY_CONFIG_NAME, Datatype
from service.errors import LoadError
from service.manifest import MODEL_FILENAME, Manifest
from service.session_config import MAX_SHOWN
from service.session_config import PARAMETERS as SESSION_PARAMETERS
from service.signature import Signature, TensorSpec
from service.warmup_samples import warmup_samples

PLATFORM = "onnxruntime_onnx"
BACKEND = "onnxruntime"
MAX_ERROR = 500  # characters of a parser's message
MAX_JSON_DEPTH = 16  # of a configuration; Triton's own has 6

_SUPPORTED = frozenset(
    (  # noqa: SIM905 - forty quotation marks say nothing
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
    """The same for a configuration as JSON, which is how clients send it."""
    config = ModelConfig()
    _check_length(text)
    try:
        json_format.Parse(text, config, max_recursion_depth=MAX_JSON_DEPTH)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise LoadError(f"config: {_shown(error)}") from error
    return _checked(config, model_name)


def _shown(error: Exception) -> str:
    """What a library says, but for the whole of what it could not read."""
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


def copy_of(config: ModelConfig) -> ModelConfig:
    copied = ModelConfig()
    copied.CopyFrom(config)
    return copied


def complete_for_text(
    config: ModelConfig,
    manifest: Manifest,
    signature: Signature,
    default_rows: int,
    *,
    is_alone: bool = False,
) -> ModelConfig:
    """The configuration with what clients see of a model with a manifest: texts in, results out.

    `signature` has no batch axis, and `is_alone` says that a text shares no run with others. A
    generative model takes one prompt per request, so its tensors have no batch axis. Raises
    `LoadError` where the file contradicts the manifest.
    """
    config = copy_of(config)
    if manifest.is_generative:
        if config.max_batch_size:
            raise LoadError(
                f"config.pbtxt: max_batch_size is {config.max_batch_size}, expected 0: requests "
                "of a generative model are one prompt each, and share steps whatever it says"
            )
        config.model_transaction_policy.decoupled = True
    else:
        _refuse_decoupled(config)
        if is_alone and config.max_batch_size > 1:
            raise LoadError(
                f"config.pbtxt: max_batch_size is {config.max_batch_size}, expected 1: what a text "
                f"of a model for {manifest.task} gives takes the square of its tokens"
            )
        config.max_batch_size = config.max_batch_size or (1 if is_alone else default_rows)
    for tensor in (*config.input, *config.output):
        if tensor.HasField("reshape"):
            raise LoadError(
                f"config.pbtxt: '{tensor.name}' has a reshape: only tensors of a graph may, and "
                f"this is a {manifest.task} model"
            )
    _fill_tensors(config, signature)
    _check_tensors(config, signature)
    _fill_rest(config)
    return config


def complete_from_graph(config: ModelConfig, graph: Signature, default_rows: int) -> ModelConfig:
    """The configuration with what the file leaves to the graph.

    One that names no tensors and no batch size gets `default_rows` where the graph can batch.
    Raises `LoadError` where the file contradicts the graph.
    """
    config = copy_of(config)
    if not config.max_batch_size and not config.input and graph.can_batch:
        config.max_batch_size = default_rows
    if config.max_batch_size and not graph.can_batch:
        raise LoadError(
            f"max_batch_size is {config.max_batch_size}, but not every tensor of the graph "
            "has a free first axis"
        )
    skip = 1 if config.max_batch_size else 0
    inputs = graph.inputs + _named_overridable(config, graph)
    specs = Signature(
        *(
            tuple(replace(spec, dims=spec.dims[skip:]) for spec in tensors)
            for tensors in (inputs, graph.outputs)
        )
    )
    _refuse_decoupled(config)
    _fill_tensors(config, specs)
    if not config.max_batch_size:
        _note_scalars(config, specs)
    _check_tensors(config, specs)
    _fill_rest(config)
    return config


def _named_overridable(config: ModelConfig, graph: Signature) -> tuple[TensorSpec, ...]:
    """Inputs that the graph has values for, where the file names them; weights may be among them.

    Raises `LoadError` as Triton does: requests that share a run would need one value for all.
    """
    stated = {tensor.name for tensor in config.input}
    named = tuple(spec for spec in graph.overridable if spec.name in stated)
    if named and config.max_batch_size:
        raise LoadError(
            f"config.pbtxt: optional input '{named[0].name}' is not supported for models that "
            "support batching: expected max_batch_size 0"
        )
    return named


def signature_of(config: ModelConfig) -> Signature:
    """The tensors of a completed configuration."""
    return Signature(
        *(
            tuple(
                TensorSpec(
                    tensor.name,
                    _datatype(tensor),
                    tuple(tensor.dims),
                    isinstance(tensor, ModelInput) and tensor.optional,
                    tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None,
                )
                for tensor in tensors
            )
            for tensors in (config.input, config.output)
        )
    )


def versions_to_serve(config: ModelConfig, found: list[int]) -> list[int]:
    """Which of the version folders the policy selects; by default the highest one."""
    ordered = sorted(found)
    policy = config.version_policy
    if policy.HasField("all"):
        return ordered
    if policy.HasField("specific"):
        wanted = set(policy.specific.versions)
        return [version for version in ordered if version in wanted]
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


def _refuse_decoupled(config: ModelConfig) -> None:
    if config.model_transaction_policy.decoupled:
        raise LoadError(
            "config.pbtxt: model_transaction_policy.decoupled is for generative models only"
        )


def _fill_tensors(config: ModelConfig, specs: Signature) -> None:
    for field, tensors in ((config.input, specs.inputs), (config.output, specs.outputs)):
        if not field:
            for spec in tensors:
                data_type = DataType.Value(spec.datatype.config_name)
                tensor = field.add(name=spec.name, data_type=data_type, dims=spec.dims or (1,))
                if not spec.dims:  # as Triton shows scalars; it is read back as what it is
                    tensor.reshape.SetInParent()
                if spec.is_optional:
                    tensor.optional = True


def _note_scalars(config: ModelConfig, specs: Signature) -> None:
    """A file states a scalar as one element, as Triton has it: dims of 1 and no reshape."""
    scalars = {spec.name for spec in specs.inputs + specs.outputs if not spec.dims}
    for tensor in (*config.input, *config.output):
        if tensor.name in scalars and set(tensor.dims) == {1}:
            tensor.reshape.SetInParent()


def _check_tensors(config: ModelConfig, specs: Signature) -> None:
    stated = signature_of(config)
    sides = (("input", stated.inputs, specs.inputs), ("output", stated.outputs, specs.outputs))
    for side, named, real in sides:
        by_name = {spec.name: spec for spec in real}
        names = {spec.name for spec in named}
        needed = {spec.name for spec in real if not spec.is_optional}
        if side == "input" and not needed <= names <= set(by_name):
            raise LoadError(
                f"config.pbtxt: inputs are {sorted(spec.name for spec in named)}, "
                f"but the model takes {sorted(by_name)}"
            )
        for spec in named:
            if spec.name not in by_name:
                raise LoadError(
                    f"config.pbtxt: {side} '{spec.name}' is not in the model, "
                    f"which has {sorted(by_name)}"
                )
            _check_same(side, spec, by_name[spec.name])


def _check_same(side: str, stated: TensorSpec, real: TensorSpec) -> None:
    if stated.datatype is not real.datatype:
        raise LoadError(
            f"config.pbtxt: {side} '{stated.name}' is {stated.datatype.config_name}, "
            f"but the model has {real.datatype.config_name}"
        )
    if stated.is_optional and not real.is_optional:
        raise LoadError(f"config.pbtxt: {side} '{stated.name}' is optional, but the model needs it")
    dims = stated.dims if stated.reshape is None else stated.reshape
    fits = len(dims) == len(real.dims) and all(
        have in (-1, want) or want == -1 for want, have in zip(dims, real.dims, strict=True)
    )
    if not fits:
        field = "dims" if stated.reshape is None else "reshape"
        raise LoadError(
            f"config.pbtxt: {side} '{stated.name}' has {field} {list(dims)}, "
            f"but the model has {list(real.dims)}"
        )


def _fill_rest(config: ModelConfig) -> None:
    too_large = [
        size
        for size in config.dynamic_batching.preferred_batch_size
        if not 1 <= size <= config.max_batch_size
    ]
    if too_large:
        raise LoadError(
            f"config.pbtxt: preferred_batch_size {too_large[0]} is not between 1 and "
            f"max_batch_size, which is {config.max_batch_size}"
        )
    config.platform = PLATFORM
    config.backend = BACKEND
    config.default_model_filename = config.default_model_filename or MODEL_FILENAME
    if not config.version_policy.WhichOneof("policy_choice"):
        config.version_policy.latest.num_versions = 1
    if config.max_batch_size and not config.HasField("dynamic_batching"):
        config.dynamic_batching.SetInParent()
    batching = config.dynamic_batching if config.HasField("dynamic_batching") else None
    if batching is not None and config.max_batch_size and not batching.preferred_batch_size:
        batching.preferred_batch_size.append(config.max_batch_size)
    for pinned in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(pinned):
            getattr(config.optimization, pinned).enable = True  # Triton's default
    if not config.instance_group:
        config.instance_group.add()
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"


def _datatype(tensor: ModelInput | ModelOutput) -> Datatype:
    name = DataType.Name(tensor.data_type)
    if name not in BY_CONFIG_NAME:
        raise LoadError(f"config.pbtxt: '{tensor.name}' has data type {name}: not supported")
    return BY_CONFIG_NAME[name]
