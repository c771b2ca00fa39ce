"""A parsed configuration with what it leaves open, from its model's manifest or graph.

A configuration is not changed: completing gives a new one. What it says is checked against what
completes it. Knows nothing of files, sessions or requests.
"""

from dataclasses import replace

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInput, ModelOutput

from service.contract.manifest import MODEL_FILENAME, Manifest
from service.contract.model_config import BACKEND, PLATFORM
from service.contract.tensors import BY_CONFIG_NAME, Datatype, Signature, TensorSpec
from service.errors import LoadError, SharesNoRuns


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
                f"config.pbtxt: max_batch_size is {config.max_batch_size}, expected 1: what an "
                f"input of a model for {manifest.task} gives takes the square of its tokens"
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


def leaves_batching_open(config: ModelConfig) -> bool:
    """Whether a file names neither a batch size nor tensors, whose dims would tell."""
    return not config.max_batch_size and not config.input


def complete_from_graph(
    config: ModelConfig, graph: Signature, default_rows: int, obstacle: str = ""
) -> ModelConfig:
    """The configuration with what the file leaves to the graph.

    One that names no tensors and no batch size gets `default_rows` where the graph can batch, and
    `obstacle` does not say why its rows cannot share runs. Raises `LoadError` where the file
    contradicts the graph, and `SharesNoRuns` where it asks for batches of such a graph.
    """
    config = copy_of(config)
    if leaves_batching_open(config) and graph.can_batch and not obstacle:
        config.max_batch_size = default_rows
    if config.max_batch_size and not graph.can_batch:
        raise SharesNoRuns(
            f"max_batch_size is {config.max_batch_size}, but not every tensor of the graph "
            "has a free first axis"
        )
    if config.max_batch_size and obstacle:
        raise SharesNoRuns(
            f"max_batch_size is {config.max_batch_size}, but requests cannot share runs of this "
            f"graph: {obstacle}; expected max_batch_size 0, and dims that begin with the first axis"
        )
    skip = 1 if config.max_batch_size else 0
    inputs = graph.inputs + _named_overridable(config, graph)
    of_inputs, of_outputs = (
        tuple(replace(spec, dims=spec.dims[skip:]) for spec in tensors)
        for tensors in (inputs, graph.outputs)
    )
    specs = Signature(of_inputs, of_outputs)
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
    inputs, outputs = (
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
    return Signature(inputs, outputs)


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
