"""`config.pbtxt`: what it leaves open is completed, what we would ignore is refused."""

from contextlib import nullcontext

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from service.batch_limits import queue_policies
from service.errors import LoadError
from service.manifest import Manifest
from service.model_config import (
    complete_from_graph,
    parameter,
    parse_config,
    parse_config_json,
    signature_of,
    versions_to_serve,
)
from service.settings import Settings
from service.signature import Signature
from service.tasks import complete_config, text_signature
from tests.fakes import classifier_manifest, embedder_manifest, generator_manifest, spec

BATCHING = Signature(
    (spec("x", "FP32", -1, 4), spec("s", "BYTES", -1, -1)), (spec("y", "INT64", -1, 2),)
)
FIXED = Signature((spec("x", "FP32", 3, 4),), (spec("y", "INT64", -1, 2),))
SCALARS = Signature((spec("x", "FP32", -1),), (spec("y", "FP32", -1),))
FULL = """
name: "m" platform: "onnxruntime_onnx" max_batch_size: 16
input [{ name: "x" data_type: TYPE_FP32 dims: [4] },
       { name: "s" data_type: TYPE_STRING dims: [-1] }]
output [{ name: "y" data_type: TYPE_INT64 dims: [2] }]
dynamic_batching { preferred_batch_size: [4, 8] max_queue_delay_microseconds: 100
                   default_queue_policy { max_queue_size: 9 } }
instance_group [{ count: 2 kind: KIND_CPU }]
version_policy { latest { num_versions: 2 } }
optimization { input_pinned_memory { enable: true } }
parameters { key: "intra_op_thread_count" value { string_value: "3" } }
"""


def completed(text: str, graph: Signature = BATCHING) -> ModelConfig:
    return complete_from_graph(parse_config(text, "m"), graph, default_rows=64)


def completed_text(text: str, manifest: Manifest) -> ModelConfig:
    return complete_config(parse_config(text, "m"), manifest, default_rows=64)


def test_a_preferred_size_fits_the_batch_size_also_where_that_is_completed() -> None:
    preferred = "dynamic_batching { preferred_batch_size: [2, 8] }"
    assert completed(preferred).max_batch_size == 64
    with pytest.raises(LoadError, match=r"preferred_batch_size 8 is not between 1 and .* is 4"):
        completed(f"max_batch_size: 4 {preferred}")


def test_an_empty_configuration_is_completed_from_the_graph() -> None:
    """What Triton's clients read: every field that its auto-complete fills."""
    config = completed("")
    assert config.name == "m"
    assert config.platform == "onnxruntime_onnx"
    assert config.backend == "onnxruntime"
    assert config.max_batch_size == 64
    assert config.default_model_filename == "model.onnx"
    assert config.version_policy.latest.num_versions == 1
    assert list(config.dynamic_batching.preferred_batch_size) == [64]
    assert config.optimization.input_pinned_memory.enable
    assert config.optimization.output_pinned_memory.enable
    assert [(group.name, group.count) for group in config.instance_group] == [("m_0", 0)]
    assert [(t.name, list(t.dims)) for t in config.input] == [("x", [4]), ("s", [-1])]
    assert [(t.name, list(t.dims)) for t in config.output] == [("y", [2])]


def test_a_graph_without_a_free_first_axis_is_served_without_batching() -> None:
    config = completed("", FIXED)
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert list(config.input[0].dims) == [3, 4]


def test_named_tensors_without_a_batch_size_are_the_full_shape() -> None:
    """Triton reads a missing max_batch_size as 0 where the file names tensors."""
    tensors = """
      input [{ name: "x" data_type: TYPE_FP32 dims: [-1, 4] },
             { name: "s" data_type: TYPE_STRING dims: [-1, -1] }]"""
    config = completed(tensors)
    assert config.max_batch_size == 0


@pytest.mark.parametrize("text", ["", "max_batch_size: 4 dynamic_batching {}", FULL])
@pytest.mark.parametrize("graph", [BATCHING, SCALARS])
def test_a_completed_configuration_can_be_given_back(text: str, graph: Signature) -> None:
    """A client reads it, changes a number, and loads the model with it."""
    if text == FULL and graph is SCALARS:
        text = "max_batch_size: 2"
    config = completed(text, graph)
    written = text_format.MessageToString(config), json_format.MessageToJson(config)
    for again in (parse_config(written[0], "m"), parse_config_json(written[1], "m")):
        assert complete_from_graph(again, graph, default_rows=64) == config


def test_a_completed_text_configuration_can_be_given_back_too() -> None:
    for manifest in (classifier_manifest(), generator_manifest()):
        config = completed_text("", manifest)
        assert completed_text(text_format.MessageToString(config), manifest) == config


def test_what_the_file_says_stays() -> None:
    config = completed(FULL)
    assert config.max_batch_size == 16
    assert list(config.dynamic_batching.preferred_batch_size) == [4, 8]
    assert config.instance_group[0].count == 2
    assert config.instance_group[0].kind == ModelInstanceGroup.KIND_CPU
    assert config.version_policy.latest.num_versions == 2
    assert parameter(config, "intra_op_thread_count", default=1) == 3
    assert parameter(config, "max_batch_tokens", default=77) == 77


def test_the_signature_is_that_of_the_completed_configuration() -> None:
    signature = signature_of(completed(FULL))
    assert signature.inputs == (spec("x", "FP32", 4), spec("s", "BYTES", -1))
    assert signature.outputs == (spec("y", "INT64", 2),)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("sequence_batching {}", "sequence_batching"),
        ("ensemble_scheduling {}", "ensemble_scheduling"),
        ("runtime: 'x'", "runtime"),
        ("dynamic_batching { preserve_ordering: true }", "dynamic_batching.preserve_ordering"),
        ("instance_group [{ rate_limiter {} }]", "instance_group.rate_limiter"),
        ("instance_group [{ passive: true }]", "instance_group.passive"),
        ("optimization { cuda { graphs: true } }", "optimization.cuda"),
        ("input [{ name: 'x' allow_ragged_batch: true }]", "input.allow_ragged_batch"),
        ("output [{ name: 'y' is_shape_tensor: true }]", "output.is_shape_tensor"),
        ("batch_input [{ kind: BATCH_ELEMENT_COUNT }]", "batch_input"),
    ],
)
def test_a_field_that_would_be_ignored_is_refused_by_name(text: str, field: str) -> None:
    with pytest.raises(LoadError) as caught:
        parse_config(text, "m")
    assert str(caught.value) == f"config.pbtxt: {field} is not supported by this server"


def test_a_configuration_may_leave_out_what_is_optional() -> None:
    """One that was written before a model took pairs says what it did."""
    text = "input [{ name: 'text' data_type: TYPE_STRING dims: 1 }]"
    config = completed_text(text, classifier_manifest())
    assert [tensor.name for tensor in config.input] == ["text"]


def test_optional_inputs_and_decoupled_answers_are_for_generative_models() -> None:
    """Any other graph needs all of its inputs, and gives one answer."""
    graph = Signature((spec("x", "FP32", -1, 1),), ())
    decoupled = parse_config("model_transaction_policy { decoupled: true }", "m")
    with pytest.raises(LoadError, match="decoupled is for generative models only"):
        complete_from_graph(decoupled, graph, 4)
    text = "max_batch_size: 4 input [{ name: 'x' data_type: TYPE_FP32 dims: 1 optional: true }]"
    with pytest.raises(LoadError, match="input 'x' is optional, but the model needs it"):
        complete_from_graph(parse_config(text, "m"), graph, 4)


def test_a_generative_model_takes_a_prompt_and_may_be_told_more() -> None:
    manifest = Manifest("text-generation", "fp32", max_tokens=64, pad_token_id=0)
    config = completed_text("", manifest)
    assert [(tensor.name, tensor.optional) for tensor in config.input] == [
        ("text_input", False),
        ("stream", True),
        ("sampling_parameters", True),
        ("exclude_input_in_output", True),
    ]
    assert [tensor.name for tensor in config.output] == ["text_output"]
    assert config.model_transaction_policy.decoupled
    assert config.max_batch_size == 0
    with pytest.raises(LoadError, match="max_batch_size is 8, expected 0"):
        completed_text("max_batch_size: 8", manifest)


def test_saying_that_a_model_is_not_decoupled_is_fine() -> None:
    parse_config("model_transaction_policy { decoupled: false }", "m")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("max_batch_size: eight", "max_batch_size"),
        ("colour: 'red'", "colour"),
        ("name: 'other'", "name is 'other', but the model's folder is 'm'"),
        ("platform: 'tensorrt_plan'", "platform 'tensorrt_plan'"),
        ("backend: 'python'", "backend 'python'"),
        ("max_batch_size: -1", "max_batch_size is -1, expected >= 0"),
        ("instance_group [{ count: -2 }]", "instance_group.count is -2, expected >= 1"),
        ("instance_group [{ kind: KIND_MODEL }]", "KIND_MODEL is not supported"),
        ("instance_group [{ gpus: [0, 1] }]", "instance_group.gpus is [0, 1], one is supported"),
        (
            "parameters { key: 'colour' value { string_value: 'red' } }",
            "parameter 'colour' is not supported by this server; it knows max_batch_tokens",
        ),
        (
            "parameters { key: 'max_batch_tokens' value { string_value: '0' } }",
            "parameter 'max_batch_tokens' is '0', expected a whole number of at least 1",
        ),
        (
            "parameters { key: 'max_batch_tokens' value { string_value: '1e6' } }",
            "parameter 'max_batch_tokens' is '1e6', expected a whole number of at least 1",
        ),
    ],
)
def test_a_wrong_value_is_named(text: str, part: str) -> None:
    with pytest.raises(LoadError) as caught:
        parse_config(text, "m")
    assert str(caught.value).startswith("config.pbtxt: ")
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "max_batch_size: 8 input [{ name: 'x' data_type: TYPE_FP32 dims: [4] }]",
            "inputs are ['x'], but the model takes ['s', 'x']",
        ),
        (
            "max_batch_size: 8 output [{ name: 'z' data_type: TYPE_INT64 dims: [2] }]",
            "output 'z' is not in the model, which has ['y']",
        ),
        (
            "max_batch_size: 8 output [{ name: 'y' data_type: TYPE_INT32 dims: [2] }]",
            "output 'y' is TYPE_INT32, but the model has TYPE_INT64",
        ),
        (
            "max_batch_size: 8 output [{ name: 'y' data_type: TYPE_INT64 dims: [3] }]",
            "output 'y' has dims [3], but the model has [2]",
        ),
        (
            "max_batch_size: 8 output [{ name: 'y' data_type: TYPE_INT64 dims: [1, 2] }]",
            "output 'y' has dims [1, 2], but the model has [2]",
        ),
        (
            "max_batch_size: 8 output [{ name: 'y' dims: [2] }]",
            "'y' has data type TYPE_INVALID: not supported",
        ),
    ],
)
def test_a_file_that_contradicts_its_graph_is_refused(text: str, part: str) -> None:
    with pytest.raises(LoadError) as caught:
        completed(text)
    assert part in str(caught.value)


def test_batching_a_graph_that_cannot_is_refused() -> None:
    with pytest.raises(LoadError, match="max_batch_size is 8, but not every tensor of the graph"):
        completed("max_batch_size: 8", FIXED)


def test_a_file_may_fix_what_the_graph_leaves_free_and_leave_free_what_it_fixes() -> None:
    text = """max_batch_size: 8
      input [{ name: 'x' data_type: TYPE_FP32 dims: [-1] },
             { name: 's' data_type: TYPE_STRING dims: [7] }]"""
    config = completed(text)
    assert [list(tensor.dims) for tensor in config.input] == [[-1], [7]]


def test_a_file_may_offer_fewer_outputs_than_the_graph_has() -> None:
    graph = Signature(BATCHING.inputs, (*BATCHING.outputs, spec("z", "FP32", -1)))
    config = completed(
        "max_batch_size: 8 output [{ name: 'y' data_type: TYPE_INT64 dims: [2] }]", graph
    )
    assert [tensor.name for tensor in config.output] == ["y"]


def test_a_text_classifier_shows_texts_labels_scores_and_logits() -> None:
    config = completed_text("", classifier_manifest())
    assert config.max_batch_size == 64
    assert signature_of(config) == text_signature(classifier_manifest())
    assert [(t.name, t.optional) for t in config.input] == [("text", False), ("text_pair", True)]
    assert [(t.name, list(t.dims)) for t in config.output] == [
        ("label", [1]),
        ("score", [1]),
        ("logits", [3]),
    ]


def test_a_text_embedder_shows_texts_and_embeddings() -> None:
    config = completed_text("max_batch_size: 5", embedder_manifest())
    assert config.max_batch_size == 5
    assert [(t.name, list(t.dims)) for t in config.output] == [("embedding", [4])]


def test_a_text_model_s_file_may_not_name_the_graph_s_tensors() -> None:
    text = "input [{ name: 'input_ids' data_type: TYPE_INT64 dims: [-1] }]"
    with pytest.raises(LoadError, match=r"inputs are \['input_ids'\], but the model takes"):
        completed_text(text, classifier_manifest())


def test_a_text_model_s_tensors_have_no_reshape() -> None:
    text = "output { name: 'logits' data_type: TYPE_FP32 dims: 3 reshape { shape: [1, 3] } }"
    with pytest.raises(LoadError, match="'logits' has a reshape: only tensors of a graph may"):
        completed_text(text, classifier_manifest())


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", [10]),
        ("version_policy { latest {} }", [10]),
        ("version_policy { latest { num_versions: 2 } }", [3, 10]),
        ("version_policy { latest { num_versions: 9 } }", [1, 2, 3, 10]),
        ("version_policy { all {} }", [1, 2, 3, 10]),
        ("version_policy { specific { versions: [1, 3, 4] } }", [1, 3]),
        ("version_policy { specific { versions: [4] } }", []),
    ],
)
def test_a_version_policy_selects_by_number(policy: str, expected: list[int]) -> None:
    """Found in the order of the file system; 10 is newer than 3."""
    assert versions_to_serve(parse_config(policy, "m"), [3, 10, 1, 2]) == expected


def test_no_version_folders_are_no_versions() -> None:
    assert versions_to_serve(parse_config("", "m"), []) == []


HOSTILE = {
    "nesting": ("input { " * 5_000, 'has no field named "input"'),
    "lists": ("input [" * 5_000, "config.pbtxt: "),
    "a huge number": (f"max_batch_size: {'9' * 6_000}", "config.pbtxt: "),
    "a number beyond its type": ("max_batch_size: 4294967296", "Value out of range"),
    "bytes that are no text": (r'platform: "\377\376"', "can't decode byte 0xff"),
    "a lone surrogate": ('name: "\ud800"', "surrogates not allowed"),
    "size": ("#" * (2**20 + 1), "1048577 characters, expected at most 1048576"),
    "batch size": ("max_batch_size: 65537", "max_batch_size is 65537, expected >= 0 and at most"),
    "preferred sizes": (
        f"dynamic_batching {{ preferred_batch_size: {[1] * 65} }}",
        "preferred_batch_size has 65 sizes, expected at most 64",
    ),
    "no dims": ("input { name: 'x' }", "input 'x' has no dims; those of a scalar are [1]"),
    "instances": ("instance_group { count: 65 }", "count is 65, expected >= 1 and at most 64"),
    "instances in all": (
        "instance_group { count: 33 } instance_group { count: 32 }",
        "65 instances",
    ),
    "a processor as GPU": (
        "instance_group { kind: KIND_CPU gpus: 0 }",
        "expected none for KIND_CPU",
    ),
    "a GPU below 0": ("instance_group { gpus: -1 }", "gpus is [-1], expected"),
    "inputs": ("input { name: 'x' }" * 1_025, "1025 inputs, expected at most 1024"),
    "no name": ("output { data_type: TYPE_FP32 }", "output 0 has no name"),
    "a long name": (f"input {{ name: '{'x' * 1_025}' }}", "input 0 has 1025 characters"),
    "a name twice": (
        "input { name: 'x' } input { name: 'x' }",
        "input 'x' is there more than once",
    ),
    "rank": (
        f"input {{ name: 'x' dims: [{', '.join('1' * 33)}] }}",
        "33 dims, expected at most 32",
    ),
    "a dim of 0": ("input { name: 'x' dims: 0 }", "input 'x' has the dim 0, expected at least 1"),
    "a dim below -1": ("output { name: 'y' dims: -2 }", "output 'y' has the dim -2, expected"),
    "elements": (
        "input { name: 'x' dims: [4294967296, 4294967296] }",
        "elements, expected at most",
    ),
    "a format without three dims": (
        "input { name: 'x' dims: [2, 2] format: FORMAT_NHWC }",
        "input 'x' has a format and 2 dims, expected 3",
    ),
    "a reshaped 0": ("input { name: 'x' dims: 1 reshape { shape: 0 } }", "reshape has the dim 0"),
    "a graph elsewhere": ("default_model_filename: '../x/model.onnx'", "without a path"),
    "a graph anywhere": ("default_model_filename: '/etc/passwd'", "without a path"),
    "the folder itself": ("default_model_filename: '..'", "without a path"),
    "a name with NUL": (r"default_model_filename: 'a\000b'", "without a path"),
    "a file's long name": (
        f"default_model_filename: '{'n' * 256}'",
        "has 256 bytes, expected at most",
    ),
    "a threads count": (
        "parameters { key: 'intra_op_thread_count' value { string_value: '%s' } }" % ("9" * 6_000),
        "expected a whole number of at most 1024",
    ),
    "digits of other scripts": (
        "parameters { key: 'max_batch_tokens' value { string_value: '\u0663' } }",
        "expected a whole number",
    ),
    "a parameter's long name": (
        f"parameters {{ key: '{'k' * 9_000}' value {{ string_value: '1' }} }}",
        "is not supported by this server",
    ),
}


AT_THE_LIMIT = {
    "batch size": "max_batch_size: 65536",
    "preferred sizes": f"dynamic_batching {{ preferred_batch_size: {[1] * 64} }}",
    "instances": "instance_group { count: 64 }",
    "instances in all": "instance_group { count: 32 } instance_group { count: 32 }",
    "the first GPU": "instance_group { kind: KIND_GPU gpus: 0 }",
    "inputs": " ".join(f"input {{ name: 'x{place}' dims: 1 }}" for place in range(1_024)),
    "a long name": f"input {{ name: '{'x' * 1_024}' dims: 1 }}",
    "rank": f"input {{ name: 'x' dims: [{', '.join('1' * 32)}] }}",
    "elements": f"input {{ name: 'x' dims: {2**63 - 1} }}",
    "a free dim in a new shape": "input { name: 'x' dims: -1 reshape { shape: [-1, 1] } }",
    "a file's long name": f"default_model_filename: '{'n' * 255}'",
    "priorities": (
        "dynamic_batching { priority_levels: 2 default_priority_level: 2 "
        "priority_queue_policy { key: 1 value {} } priority_queue_policy { key: 2 value {} } }"
    ),
    "bytes": (
        "optimization { execution_accelerators { gpu_execution_accelerator { name: 'tensorrt' "
        f"parameters {{ key: 'max_workspace_size_bytes' value: '{2**63 - 1}' }} }} }} }}"
    ),
}


@pytest.mark.parametrize("case", AT_THE_LIMIT)
def test_what_is_at_a_limit_is_allowed(case: str) -> None:
    config = parse_config(AT_THE_LIMIT[case], "m")
    queue_policies(config, Settings())


@pytest.mark.parametrize(("level", "is_allowed"), [(1, True), (2, True), (3, False)])
def test_a_queue_policy_is_of_a_level_that_there_is(level: int, is_allowed: bool) -> None:
    text = (
        "dynamic_batching { priority_levels: 2 default_priority_level: 1 "
        f"priority_queue_policy {{ key: {level} value {{}} }} }}"
    )
    with nullcontext() if is_allowed else pytest.raises(LoadError, match="has the level 3"):
        queue_policies(parse_config(text, "m"), Settings())


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_gets_a_short_answer_that_names_the_limit(case: str) -> None:
    text, part = HOSTILE[case]
    with pytest.raises(LoadError) as caught:
        parse_config(text, "m")
    message = str(caught.value)
    assert message.startswith("config.pbtxt: ")
    assert part in message
    assert len(message) < 1_500
    message.encode()  # it goes into logs and over the wire


@pytest.mark.parametrize(
    "text",
    ["", "[" * 100_000, '{"a":' * 100_000, '{"name": "\\ud800"}', '"\\ud800"', "{" + " " * 2**20],
)
def test_json_that_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(LoadError) as caught:
        parse_config_json(text, "m")
    assert len(str(caught.value)) < 1_500
