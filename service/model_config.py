"""`config.pbtxt`: parse it, refuse what we do not implement, complete it from the graph.

The format is Triton's `inference.ModelConfig` in protobuf text form. A field we do
not act on is refused by its name, so that nobody believes in a setting that does
nothing. Knows nothing of files, sessions or requests.
"""

from dataclasses import dataclass

from google.protobuf import json_format, text_format
from google.protobuf.message import Message
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInput, ModelOutput

from service.datatypes import BY_CONFIG_NAME, DATATYPES, Datatype
from service.errors import LoadError
from service.manifest import Manifest

PLATFORM = "onnxruntime_onnx"
BACKEND = "onnxruntime"
MODEL_FILENAME = "model.onnx"
MAX_JSON_DEPTH = 16  # of a configuration; Triton's own has 6

_SUPPORTED = frozenset(
    (  # noqa: SIM905 - forty quotation marks say nothing
        "name platform backend max_batch_size default_model_filename parameters "
        "input.name input.data_type input.dims input.optional "
        "output.name output.data_type output.dims output.label_filename "
        "dynamic_batching.preferred_batch_size dynamic_batching.max_queue_delay_microseconds "
        "dynamic_batching.priority_levels dynamic_batching.default_priority_level "
        "dynamic_batching.default_queue_policy dynamic_batching.priority_queue_policy "
        "instance_group.name instance_group.count instance_group.kind instance_group.gpus "
        "version_policy.latest.num_versions version_policy.all version_policy.specific.versions "
        "model_transaction_policy.decoupled "
        # These tune how Triton moves memory, which we have no counterpart of.
        "optimization.priority optimization.input_pinned_memory optimization.output_pinned_memory "
        "optimization.gather_kernel_buffer_threshold optimization.eager_batching"
    ).split()
)
# Whole numbers of at least 1; each overrides the setting of the same name for one model.
PARAMETERS = (
    "intra_op_thread_count",
    "max_batch_tokens",
    "max_queue_rows",
    "max_queue_tokens",
    "batch_overhead_tokens",
    "max_running_sequences",
    "max_prefill_tokens",
    "max_context_tokens",
    "kv_cache_bytes",
)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output. `dims` may hold -1, and leave out the batch axis in a config."""

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    is_optional: bool = False  # inputs only


@dataclass(frozen=True, slots=True)
class Signature:
    """What a graph takes and gives, dims complete."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def can_batch(self) -> bool:
        """Whether every tensor has a free first axis."""
        return all(spec.dims[:1] == (-1,) for spec in self.inputs + self.outputs)


def parse_config(text: str, directory_name: str) -> ModelConfig:
    """Read a configuration, or raise `LoadError` naming the line or field that is wrong."""
    config = ModelConfig()
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        raise LoadError(f"config.pbtxt: {error}") from error
    return _checked(config, directory_name)


def parse_config_json(text: str, model_name: str) -> ModelConfig:
    """The same for a configuration as JSON, which is how clients send it."""
    config = ModelConfig()
    try:
        json_format.Parse(text, config, max_recursion_depth=MAX_JSON_DEPTH)
    except json_format.ParseError as error:
        raise LoadError(f"config: {error}") from error
    return _checked(config, model_name)


def _checked(config: ModelConfig, model_name: str) -> ModelConfig:
    if config.name not in ("", model_name):
        raise LoadError(
            f"config.pbtxt: name is '{config.name}', but the model's folder is '{model_name}'"
        )
    config.name = model_name
    _refuse_unsupported(config)
    _check_values(config)
    return config


def complete_for_text(config: ModelConfig, manifest: Manifest, default_rows: int) -> None:
    """Fill in what a text model's clients see: `text` in, results out.

    A generative model takes one prompt per request, so its tensors have no batch axis.
    """
    if manifest.task == "text-generation":
        if config.max_batch_size:
            raise LoadError(
                f"config.pbtxt: max_batch_size is {config.max_batch_size}, expected 0: requests "
                "of a generative model are one prompt each, and share steps whatever it says"
            )
        config.model_transaction_policy.decoupled = True
    else:
        _refuse_decoupled(config)
        config.max_batch_size = config.max_batch_size or default_rows
    specs = text_signature(manifest)
    _fill_tensors(config, specs)
    _check_tensors(config, specs)
    _fill_rest(config)


def complete_from_graph(config: ModelConfig, graph: Signature, default_rows: int) -> None:
    """Fill in what the file leaves open from the graph, and check what it says against it.

    A configuration that names no tensors and no batch size gets `default_rows` where
    the graph can batch.
    """
    if not config.max_batch_size and not config.input and graph.can_batch:
        config.max_batch_size = default_rows
    if config.max_batch_size and not graph.can_batch:
        raise LoadError(
            f"max_batch_size is {config.max_batch_size}, but not every tensor of the graph "
            "has a free first axis"
        )
    skip = 1 if config.max_batch_size else 0
    specs = Signature(
        *(
            tuple(TensorSpec(spec.name, spec.datatype, spec.dims[skip:]) for spec in tensors)
            for tensors in (graph.inputs, graph.outputs)
        )
    )
    _refuse_decoupled(config)
    _fill_tensors(config, specs)
    _check_tensors(config, specs)
    _fill_rest(config)


def text_signature(manifest: Manifest) -> Signature:
    """The tensors of a text model as its clients see them, without the batch axis."""
    if manifest.task == "text-generation":
        return GENERATION
    text = (TensorSpec("text", DATATYPES["BYTES"], (1,)),)
    if manifest.task == "embedding":
        embedding = TensorSpec("embedding", DATATYPES["FP32"], (manifest.embedding_size,))
        return Signature(text, (embedding,))
    label = TensorSpec("label", DATATYPES["BYTES"], (1,))
    score = TensorSpec("score", DATATYPES["FP32"], (1,))
    logits = TensorSpec("logits", DATATYPES["FP32"], (len(manifest.labels),))
    return Signature(text, (label, score, logits))


# What Triton's generative backends take and give.
GENERATION = Signature(
    (
        TensorSpec("text_input", DATATYPES["BYTES"], (1,)),
        TensorSpec("stream", DATATYPES["BOOL"], (1,), is_optional=True),
        TensorSpec("sampling_parameters", DATATYPES["BYTES"], (1,), is_optional=True),
        TensorSpec("exclude_input_in_output", DATATYPES["BOOL"], (1,), is_optional=True),
    ),
    (TensorSpec("text_output", DATATYPES["BYTES"], (-1,)),),
)


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
        return [version for version in ordered if version in policy.specific.versions]
    return ordered[-max(1, policy.latest.num_versions) :]


def parameter(config: ModelConfig, name: str, default: int) -> int:
    """A whole-number parameter of this model, or the server's setting."""
    assert name in PARAMETERS
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
            for child in value if field.is_repeated else [value]:
                _refuse_unsupported(child, f"{path}.")
        elif path not in _SUPPORTED:
            raise LoadError(f"config.pbtxt: {path} is not supported by this server")


def _check_parameters(config: ModelConfig) -> None:
    for key, value in config.parameters.items():
        if key not in PARAMETERS:
            raise LoadError(
                f"config.pbtxt: parameter '{key}' is not supported by this server; "
                f"it knows {', '.join(PARAMETERS)}"
            )
        if not (value.string_value.isdecimal() and int(value.string_value) >= 1):
            raise LoadError(
                f"config.pbtxt: parameter '{key}' is '{value.string_value}', "
                "expected a whole number of at least 1"
            )


def _check_values(config: ModelConfig) -> None:
    if config.platform not in ("", PLATFORM) or config.backend not in ("", BACKEND):
        raise LoadError(
            f"config.pbtxt: platform '{config.platform}' with backend '{config.backend}', this "
            f"server runs platform '{PLATFORM}', backend '{BACKEND}'"
        )
    if config.max_batch_size < 0:
        raise LoadError(f"config.pbtxt: max_batch_size is {config.max_batch_size}, expected >= 0")
    for group in config.instance_group:
        if len(group.gpus) > 1:
            raise LoadError(
                f"config.pbtxt: instance_group.gpus is {list(group.gpus)}, one is supported"
            )
        if group.count < 0:
            raise LoadError(f"config.pbtxt: instance_group.count is {group.count}, expected >= 1")
        if group.kind == group.KIND_MODEL:
            raise LoadError("config.pbtxt: instance_group.kind KIND_MODEL is not supported")


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
                tensor = field.add(name=spec.name, data_type=data_type, dims=spec.dims)
                if spec.is_optional:
                    tensor.optional = True


def _check_tensors(config: ModelConfig, specs: Signature) -> None:
    stated = signature_of(config)
    sides = (("input", stated.inputs, specs.inputs), ("output", stated.outputs, specs.outputs))
    for side, named, real in sides:
        by_name = {spec.name: spec for spec in real}
        if side == "input" and {spec.name for spec in named} != set(by_name):
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
    fits = len(stated.dims) == len(real.dims) and all(
        have in (-1, want) or want == -1 for want, have in zip(stated.dims, real.dims, strict=True)
    )
    if not fits:
        raise LoadError(
            f"config.pbtxt: {side} '{stated.name}' has dims {list(stated.dims)}, "
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
    if not config.instance_group:
        config.instance_group.add()
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"


def _datatype(tensor: ModelInput | ModelOutput) -> Datatype:
    name = DataType.Name(tensor.data_type)
    if name not in BY_CONFIG_NAME:
        raise LoadError(f"config.pbtxt: '{tensor.name}' has data type {name}: not supported")
    return BY_CONFIG_NAME[name]
