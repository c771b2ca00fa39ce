"""`config.pbtxt`: what it leaves open is completed, what we would ignore is refused."""

from contextlib import nullcontext

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from service.contract.config_completion import complete_from_graph, signature_of
from service.contract.manifest import Manifest
from service.contract.model_config import (
    MAX_ERROR,
    parameter,
    parse_config,
    parse_config_json,
    versions_to_serve,
)
from service.contract.tensors import Signature
from service.errors import LoadError
from service.repository.limits import queue_policies
from service.serving.tasks.table import complete_config, text_signature
from service.settings import Settings
from tests.fakes.sessions import classifier_manifest, embedder_manifest, generator_manifest, spec

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


def test_saying_that_a_model_is_not_decoupled_is_fine() -> None:
    parse_config("model_transaction_policy { decoupled: false }", "m")


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


@pytest.mark.parametrize(
    "text",
    ["", "[" * 100_000, '{"a":' * 100_000, '{"name": "\\ud800"}', '"\\ud800"', "{" + " " * 2**20],
)
def test_json_that_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(LoadError) as caught:
        parse_config_json(text, "m")
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize(("length", "is_whole"), [(1, True), (100, True), (5_000, False)])
def test_of_a_parser_s_message_no_more_than_its_beginning_is_shown(
    length: int, is_whole: bool
) -> None:
    """It has the line that it cannot read, which may be the whole file."""
    word = "x" * length
    with pytest.raises(LoadError) as refused:
        parse_config(f"max_batch_size: {word}", "m")
    shown = str(refused.value).removeprefix("config.pbtxt: ")
    assert (word in shown) is is_whole
    assert shown.endswith("...") is not is_whole
    assert len(shown) <= MAX_ERROR + len("...")
