"""Every field that `config.pbtxt` can have: acted on, or refused by its name.

The tables are whole: a newer protocol with one more field fails here, until it is decided
what becomes of it.
"""

import re
from collections.abc import Iterator

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.model_config import parse_config
from service.errors import LoadError

ACTED_ON = """
    name platform backend default_model_filename max_batch_size parameters.string_value
    version_policy.latest.num_versions version_policy.all version_policy.specific.versions
    input.name input.data_type input.format input.dims input.reshape.shape input.optional
    output.name output.data_type output.dims output.reshape.shape output.label_filename
    instance_group.name instance_group.kind instance_group.count instance_group.gpus
    dynamic_batching.preferred_batch_size dynamic_batching.max_queue_delay_microseconds
    dynamic_batching.priority_levels dynamic_batching.default_priority_level
    dynamic_batching.default_queue_policy.timeout_action
    dynamic_batching.default_queue_policy.default_timeout_microseconds
    dynamic_batching.default_queue_policy.allow_timeout_override
    dynamic_batching.default_queue_policy.max_queue_size
    dynamic_batching.priority_queue_policy.timeout_action
    dynamic_batching.priority_queue_policy.default_timeout_microseconds
    dynamic_batching.priority_queue_policy.allow_timeout_override
    dynamic_batching.priority_queue_policy.max_queue_size
    optimization.graph.level
    optimization.execution_accelerators.gpu_execution_accelerator.name
    optimization.execution_accelerators.gpu_execution_accelerator.parameters
    optimization.execution_accelerators.cpu_execution_accelerator.name
    optimization.execution_accelerators.cpu_execution_accelerator.parameters
    model_warmup.name model_warmup.batch_size model_warmup.count
    model_warmup.inputs.data_type model_warmup.inputs.dims model_warmup.inputs.zero_data
    model_warmup.inputs.random_data model_warmup.inputs.input_data_file
    model_transaction_policy.decoupled
    response_cache.enable
"""
# They tune how Triton moves memory; docs/reference/settings.md says that they change nothing here.
TUNING_ONLY = """
    optimization.priority optimization.input_pinned_memory.enable
    optimization.output_pinned_memory.enable optimization.gather_kernel_buffer_threshold
    optimization.eager_batching
"""
REFUSED = """
    runtime
    input.is_shape_tensor input.allow_ragged_batch input.is_non_linear_format_io
    output.is_shape_tensor output.is_non_linear_format_io
    batch_input.kind batch_input.target_name batch_input.data_type batch_input.source_input
    batch_output.target_name batch_output.kind batch_output.source_input
    optimization.cuda.graphs optimization.cuda.busy_wait_events
    optimization.cuda.graph_spec.batch_size optimization.cuda.graph_spec.input.dim
    optimization.cuda.graph_spec.graph_lower_bound.batch_size
    optimization.cuda.graph_spec.graph_lower_bound.input.dim optimization.cuda.output_copy_stream
    dynamic_batching.preserve_ordering
    sequence_batching.direct.max_queue_delay_microseconds
    sequence_batching.direct.minimum_slot_utilization
    sequence_batching.oldest.max_candidate_sequences
    sequence_batching.oldest.preferred_batch_size
    sequence_batching.oldest.max_queue_delay_microseconds
    sequence_batching.oldest.preserve_ordering
    sequence_batching.max_sequence_idle_microseconds
    sequence_batching.control_input.name sequence_batching.control_input.control.kind
    sequence_batching.control_input.control.int32_false_true
    sequence_batching.control_input.control.fp32_false_true
    sequence_batching.control_input.control.bool_false_true
    sequence_batching.control_input.control.data_type
    sequence_batching.state.input_name sequence_batching.state.output_name
    sequence_batching.state.data_type sequence_batching.state.dims
    sequence_batching.state.initial_state.data_type sequence_batching.state.initial_state.dims
    sequence_batching.state.initial_state.zero_data
    sequence_batching.state.initial_state.data_file sequence_batching.state.initial_state.name
    sequence_batching.state.use_same_buffer_for_input_output
    sequence_batching.state.use_growable_memory sequence_batching.iterative_sequence
    ensemble_scheduling.step.model_name ensemble_scheduling.step.model_version
    ensemble_scheduling.step.input_map ensemble_scheduling.step.output_map
    ensemble_scheduling.step.model_namespace ensemble_scheduling.max_inflight_requests
    instance_group.rate_limiter.resources.name instance_group.rate_limiter.resources.global
    instance_group.rate_limiter.resources.count instance_group.rate_limiter.priority
    instance_group.secondary_devices.kind instance_group.secondary_devices.device_id
    instance_group.profile instance_group.passive instance_group.host_policy
    cc_model_filenames metric_tags
    model_operations.op_library_filename
    model_repository_agents.agents.name model_repository_agents.agents.parameters
    model_metrics.metric_control.metric_identifier.family
    model_metrics.metric_control.histogram_options.buckets
"""


def value_of(field: FieldDescriptor) -> FieldDescriptor | None:
    """The values of a map, or nothing where a field is none."""
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    return field.message_type.fields_by_name["value"] if is_map else None


def paths_of(descriptor: Descriptor, prefix: str = "") -> Iterator[str]:
    """Every field that holds no others, by its path; a message without fields is one too."""
    for field in descriptor.fields:
        path = prefix + field.name
        value = value_of(field)
        inner = (value or field).message_type
        if inner is not None and inner.fields:
            yield from paths_of(inner, f"{path}.")
        else:
            yield path


def set_field(message: Message, path: str) -> None:
    """Give a field some value that is not its default, and its parents what they need."""
    name, _, rest = path.partition(".")
    field = message.DESCRIPTOR.fields_by_name[name]
    value = value_of(field)
    if value is not None:
        key: object = (
            "x" if field.message_type.fields_by_name["key"].type == field.TYPE_STRING else 1
        )
        if value.message_type is None:
            getattr(message, name)[key] = "x"
        else:
            child = getattr(message, name)[key]
            child.SetInParent()
            set_field(child, rest)
    elif field.message_type is not None:
        child = getattr(message, name).add() if field.is_repeated else getattr(message, name)
        child.SetInParent()
        if rest:
            set_field(child, rest)
    else:
        some = {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True}.get(field.cpp_type, 1)
        if field.is_repeated:
            getattr(message, name).append(some)
        else:
            setattr(message, name, some)


def refusal(path: str) -> str:
    """What is said of a configuration in which only this field is set; nothing if it is fine."""
    config = ModelConfig()
    set_field(config, path)
    try:
        parse_config(text_format.MessageToString(config), "m")
    except LoadError as error:
        return str(error)
    return ""


def test_every_field_is_in_one_of_the_tables() -> None:
    named = [*ACTED_ON.split(), *TUNING_ONLY.split(), *REFUSED.split()]
    assert sorted(named) == sorted(paths_of(ModelConfig.DESCRIPTOR))


@pytest.mark.parametrize("path", [*ACTED_ON.split(), *TUNING_ONLY.split()])
def test_a_field_that_is_acted_on_is_not_refused_by_name(path: str) -> None:
    """Its value may be, since the others that it needs are missing."""
    said = refusal(path)
    assert "is not supported by this server" not in said or path == "parameters.string_value"


@pytest.mark.parametrize("path", REFUSED.split())
def test_every_other_field_is_refused_by_the_name_that_is_in_the_file(path: str) -> None:
    field = re.match(r"config\.pbtxt: (.*) is not supported by this server(: .*)?$", refusal(path))
    assert field, "it is not refused"
    assert path == field[1] or path.startswith(f"{field[1]}.")


def test_operators_of_libraries_are_refused_with_the_reason() -> None:
    assert refusal("model_operations.op_library_filename") == (
        "config.pbtxt: model_operations is not supported by this server: "
        "operators of libraries are other people's code in this process"
    )
