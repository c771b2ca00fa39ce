"""What a configuration may not say, as a plan of its model finds it: each refusal names the field.

`config.pbtxt` may come from a client: an answer stays short, whatever the file holds.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.files import ModelSource
from service.contract.manifest import Manifest
from service.contract.model_config import parse_config
from service.contract.session_tuning import PARAMETERS
from service.contract.tensors import Signature
from service.errors import LoadError
from service.repository.limits import MAX_PRIORITY_LEVELS
from service.repository.loading import Openers, load_model
from service.repository.plan import ModelPlan, plan_of
from service.runtime.session import SessionOptions, choose_device
from service.settings import Settings
from tests.fakes.sessions import (
    FakeSession,
    classifier_manifest,
    generator_manifest,
    spec,
    write_model,
)

GRAPH = Signature(
    (spec("x", "FP32", -1, 4), spec("s", "BYTES", -1, -1)), (spec("y", "INT64", -1, 2),)
)
Case = tuple[str, str]  # a configuration, and a part of its refusal


def planned(
    folder: Path, text: str, manifest: Manifest | None = None, graph: Signature = GRAPH
) -> ModelPlan:
    """The plan of a model `m` with all that is derived from it, or what is wrong."""
    model = write_model(folder, "m", manifest)
    plan = plan_of(model, 1, parse_config(text, "m"), Settings(device="cpu"), choose_device)
    if plan.is_generative:
        assert plan.steps, "sequences join and leave steps"
    else:
        plan = plan.completed(graph)
    assert plan.limits, "every queue has bounds"
    return plan


def parameter(name: str, value: str) -> str:
    return f"parameters {{ key: '{name}' value {{ string_value: '{value}' }} }}"


def accelerator(side: str, name: str, **parameters: str) -> str:
    inner = " ".join(
        f"parameters {{ key: '{key}' value: '{value}' }}" for key, value in parameters.items()
    )
    one = f"{side}_execution_accelerator {{ name: '{name}' {inner} }}"
    return f"optimization {{ execution_accelerators {{ {one} }} }}"


def of_files() -> Iterator[Case]:
    """Text that is no configuration, and names of files."""
    yield "max_batch_size: eight", "max_batch_size"
    yield "colour: 'red'", "colour"
    yield "input { " * 5_000, 'has no field named "input"'
    yield "input [" * 5_000, ""
    yield f"max_batch_size: {'9' * 6_000}", ""
    yield "max_batch_size: 4294967296", "Value out of range"
    yield r'platform: "\377\376"', "can't decode byte 0xff"
    yield 'name: "\ud800"', "surrogates not allowed"
    yield "#" * (2**20 + 1), "1048577 characters, expected at most 1048576"
    yield "name: 'other'", "name is 'other', but the model's folder is 'm'"
    yield "platform: 'tensorrt_plan'", "platform 'tensorrt_plan'"
    yield "backend: 'python'", "backend 'python'"
    for name in ("../x/model.onnx", "/etc/passwd", "..", r"a\000b"):
        yield f"default_model_filename: '{name}'", "without a path"
    yield f"default_model_filename: '{'n' * 256}'", "has 256 bytes, expected at most"


def of_sizes() -> Iterator[Case]:
    """Batches and instances."""
    yield "max_batch_size: -1", "max_batch_size is -1, expected >= 0"
    yield "max_batch_size: 65537", "max_batch_size is 65537, expected >= 0 and at most"
    yield "instance_group [{ count: -2 }]", "instance_group.count is -2, expected >= 1"
    yield "instance_group { count: 65 }", "count is 65, expected >= 1 and at most 64"
    yield "instance_group { count: 33 } instance_group { count: 32 }", "65 instances"
    yield "instance_group [{ kind: KIND_MODEL }]", "KIND_MODEL is not supported"
    yield "instance_group [{ gpus: [0, 1] }]", "instance_group.gpus is [0, 1], one is supported"
    yield "instance_group { kind: KIND_CPU gpus: 0 }", "expected none for KIND_CPU"
    yield "instance_group { gpus: -1 }", "gpus is [-1], expected"
    many = f"preferred_batch_size: {[1] * 65}"
    yield f"dynamic_batching {{ {many} }}", "preferred_batch_size has 65 sizes, expected at most 64"


def of_levels() -> Iterator[Case]:
    """Of priorities, which a plan looks at."""
    for batching, part in {
        "priority_levels: 2": (
            "default_priority_level is 0, expected 1 to priority_levels, which is 2"
        ),
        "priority_levels: 2 default_priority_level: 3": "default_priority_level is 3, expected 1",
        "default_priority_level: 1": "default_priority_level is 1, but priority_levels is not",
        f"priority_levels: {MAX_PRIORITY_LEVELS + 1} default_priority_level: 1": (
            f"priority_levels is {MAX_PRIORITY_LEVELS + 1}, expected at most {MAX_PRIORITY_LEVELS}"
        ),
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy {key: 3 value {}}": (
            "priority_queue_policy has the level 3, expected 1 to priority_levels, which is 2"
        ),
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy {key: 0 value {}}": (
            "priority_queue_policy has the level 0"
        ),
        "priority_queue_policy { key: 1 value {} }": (
            "priority_queue_policy has the level 1, expected 1 to priority_levels, which is 0"
        ),
    }.items():
        yield f"dynamic_batching {{ {batching} }}", f"dynamic_batching.{part}"


def of_tensors() -> Iterator[Case]:
    """What no tensor can be."""
    yield from {
        "input { name: 'x' }": "input 'x' has no dims; those of a scalar are [1]",
        "input { name: 'x' }" * 1_025: "1025 inputs, expected at most 1024",
        "output { data_type: TYPE_FP32 }": "output 0 has no name",
        f"input {{ name: '{'x' * 1_025}' }}": "input 0 has 1025 characters",
        "input { name: 'x' } input { name: 'x' }": "input 'x' is there more than once",
        f"input {{ name: 'x' dims: {[1] * 33} }}": "33 dims, expected at most 32",
        "input { name: 'x' dims: 0 }": "input 'x' has the dim 0, expected at least 1",
        "output { name: 'y' dims: -2 }": "output 'y' has the dim -2, expected",
        "input { name: 'x' dims: [4294967296, 4294967296] }": "elements, expected at most",
        "input { name: 'x' dims: [2, 2] format: FORMAT_NHWC }": "has a format and 2 dims, expected",
        "input { name: 'x' dims: 1 reshape { shape: 0 } }": "reshape has the dim 0",
    }.items()


def of_graphs() -> Iterator[Case]:
    """Tensors that those of the graph are not."""
    yield (
        "max_batch_size: 8 input [{ name: 'x' data_type: TYPE_FP32 dims: [4] }]",
        "inputs are ['x'], but the model takes ['s', 'x']",
    )
    for output, part in {
        "name: 'z' data_type: TYPE_INT64 dims: [2]": "'z' is not in the model, which has ['y']",
        "name: 'y' data_type: TYPE_INT32 dims: [2]": "TYPE_INT32, but the model has TYPE_INT64",
        "name: 'y' data_type: TYPE_INT64 dims: [3]": "'y' has dims [3], but the model has [2]",
        "name: 'y' data_type: TYPE_INT64 dims: [1, 2]": "has dims [1, 2], but the model has [2]",
        "name: 'y' dims: [2]": "'y' has data type TYPE_INVALID: not supported",
    }.items():
        yield f"max_batch_size: 8 output [{{ {output} }}]", part


def of_parameters() -> Iterator[Case]:
    """Of the server's, of sessions and of accelerators."""
    yield parameter("colour", "red"), "'colour' is not supported by this server; it knows max_batch"
    yield parameter("k" * 9_000, "1"), "is not supported by this server"
    for value in ("0", "1e6"):
        part = f"parameter 'max_batch_tokens' is '{value}', expected a whole number of at least 1"
        yield parameter("max_batch_tokens", value), part
    yield parameter("max_batch_tokens", "\u0663"), "expected a whole number"
    for name in PARAMETERS:
        yield parameter(name, "no such"), f"parameter '{name}' is 'no such', expected "
    for name, value, part in (
        ("intra_op_thread_count", "1025", "a whole number of at most 1024"),
        ("intra_op_thread_count", "9" * 6_000, "expected a whole number of at most 1024"),
        ("inter_op_thread_count", "9" * 5_000, "a whole number of at most 1024"),
        ("execution_mode", "2", "expected 0 or 1"),
        ("share_session_between_instances", "false", "share one session"),
    ):
        yield parameter(name, value), part
    yield "optimization { graph { level: 3 } }", "graph.level is 3, expected one of [-1, 0, 1, 2]"
    unknown = "unknown Execution Accelerator"
    yield (
        accelerator("gpu", "auto"),
        f"{unknown} 'auto' is requested, expected one of ['cuda', 'tensorrt']",
    )
    yield accelerator("cpu", "tensorrt"), f"{unknown} 'tensorrt'"
    yield accelerator("cpu", ""), f"{unknown} ''"
    for side, name, option, value in (
        ("gpu", "tensorrt", "trt_extra_plugin_lib_paths", "/tmp/evil.so"),
        ("gpu", "tensorrt", "trt_engine_cache_path", "/etc"),
        ("gpu", "cuda", "user_compute_stream", "140737"),
        ("cpu", "openvino", "cache_dir", "/etc"),
    ):
        text = accelerator(side, name, **{option: value})
        yield text, f"parameter '{option}' of '{name}' is not supported"
    yield (
        accelerator("gpu", "tensorrt", precision_mode="INT4"),
        "parameter 'precision_mode' is 'INT4', expected FP32, FP16, BF16 or INT8",
    )
    twice = "cpu_execution_accelerator [{ name: 'openvino' }, { name: 'openvino' }]"
    yield (
        f"optimization {{ execution_accelerators {{ {twice} }} }}",
        "cpu_execution_accelerator has 'openvino' twice",
    )
    for value, part in {  # properties that OpenVINO is not to see
        "/etc/passwd": " is '/etc/passwd', expected JSON of at most 1024 characters like",
        "": " is '', expected JSON",
        "[" * 1_000: f" is '{'[' * 100}', expected JSON",
        "{" + " " * 1_024 + "}": f" is '{{{' ' * 99}', expected JSON",
        "[]": " is '[]', expected JSON",
        '{"GPU": {}}': """ is '{"GPU": {}}', expected JSON""",
        '{"CPU": "config.json"}': """ is '{"CPU": "config.json"}', expected JSON""",
        '{"CPU": {"CACHE_DIR": "/tmp"}}': (
            """ is '{"CPU": {"CACHE_DIR": "/tmp"}}', expected JSON of at most 1024 characters """
            """like {"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}; of CPU it knows """
            "INFERENCE_PRECISION_HINT, "
        ),
        '{"CPU": {"NUM_STREAMS": {"x": 1}}}': (
            """ is '{"CPU": {"NUM_STREAMS": {"x": 1}}}', expected JSON"""
        ),
        '{"CPU": {"NUM_STREAMS": 256}}': ": CPU.NUM_STREAMS is '256', expected a whole number",
        '{"CPU": {"NUM_STREAMS": true}}': ": CPU.NUM_STREAMS is 'True', expected a whole number",
        '{"CPU": {"INFERENCE_PRECISION_HINT": "int4"}}': (
            ": CPU.INFERENCE_PRECISION_HINT is 'int4', expected one of f32, bf16, f16"
        ),
    }.items():
        text = accelerator("cpu", "openvino", load_config=value)
        yield text, f"parameter 'load_config'{part}"


def of_samples() -> Iterator[Case]:
    """Of `model_warmup`, as far as the configuration alone can tell."""
    source = {"zero_data": "zero_data: true", "": ""}
    for name in ("..", "../secret", "/etc/passwd"):
        source[name] = f"input_data_file: '{name}'"
    for key, dims, part in (
        ("zero_data", "-1", "input 'x' has the dim -1, expected at least 1"),
        ("zero_data", f"{2**40}, {2**40}", "elements, expected at most"),
        ("", "3", "input 'x' has none of zero_data, random_data and input_data_file"),
        ("..", "3", "input_data_file is '..', expected a file's name without a path"),
        ("../secret", "3", "expected a file's name without a path"),
        ("/etc/passwd", "3", "a file's name without a path"),
    ):
        value = f"data_type: TYPE_FP32 dims: [{dims}] {source[key]}"
        inputs = f"inputs {{ key: 'x' value {{ {value} }} }}"
        yield f"model_warmup {{ name: 'first' {inputs} }}", part
    yield "model_warmup { name: 'first' count: 1001 }", "'first' has count 1001, expected at most"
    yield "model_warmup { name: 'first' }" * 65, "65 model_warmup, expected at most 64"


def of_generation() -> Iterator[Case]:
    """What a model that generates step by step has no use for."""
    for batching, part in {
        "preferred_batch_size: [4]": "preferred_batch_size is set",
        "max_queue_delay_microseconds: 1": "max_queue_delay_microseconds is set",
        "priority_levels: 1 default_priority_level: 1": "priority_levels is set",
        "priority_queue_policy { key: 1 value {} }": "priority_queue_policy is set",
        "default_queue_policy { timeout_action: DELAY }": (
            "default_queue_policy.timeout_action is DELAY, a generative model knows REJECT only"
        ),
    }.items():
        yield f"dynamic_batching {{ {batching} }}", part
    yield "instance_group [{ count: 2 }]", "instance_group.count is 2, expected 1"
    yield "max_batch_size: 8", "max_batch_size is 8, expected 0"
    yield "response_cache { enable: true }", "response_cache is not supported for generative models"
    name = "memory.enable_memory_arena_shrinkage"
    yield parameter(name, "cpu:0"), f"parameter '{name}' has no effect on a generative model"


def of_texts() -> Iterator[Case]:
    """Tensors of a text model, which are those of its task."""
    yield (
        "input [{ name: 'input_ids' data_type: TYPE_INT64 dims: [-1] }]",
        "inputs are ['input_ids'], but the model takes",
    )
    yield (
        "output { name: 'logits' data_type: TYPE_FP32 dims: 3 reshape { shape: [1, 3] } }",
        "'logits' has a reshape: only tensors of a graph may",
    )
    yield (
        "model_transaction_policy { decoupled: true }",
        "model_transaction_policy.decoupled is for generative models only",
    )


PARSED = (of_files, of_sizes, of_tensors, of_parameters, of_samples)
PLANNED = {
    of_levels: None,
    of_graphs: None,
    of_texts: classifier_manifest(),
    of_generation: generator_manifest(),
}


def params(*tables: Callable[[], Iterator[Case]]) -> list[Any]:
    return [
        pytest.param(table, text, part, id=f"{table.__name__}-{number}")
        for table in tables
        for number, (text, part) in enumerate(table())
    ]


@pytest.mark.parametrize(("table", "text", "part"), params(*PARSED, *PLANNED))
def test_what_cannot_be_is_refused_with_a_short_answer_that_names_it(
    table: Callable[[], Iterator[Case]], text: str, part: str, tmp_path: Path
) -> None:
    """Most of it as it is parsed, before a file of the model is looked at."""
    read: Callable[[], object] = partial(parse_config, text, "m")
    if table in PLANNED:
        read = partial(planned, tmp_path, text, PLANNED[table])
    with pytest.raises(LoadError) as caught:
        read()
    message = str(caught.value)
    assert message.startswith("config.pbtxt: ")
    assert part in message
    assert len(message) < 1_500
    message.encode()  # it goes into logs and over the wire


def test_a_plan_leaves_the_configuration_as_it_was_parsed(tmp_path: Path) -> None:
    """All versions of a model, and loads that fail, begin with the same one."""
    settings = Settings(device="cpu", instances=3)
    for manifest, count in ((None, 3), (classifier_manifest(), 3), (generator_manifest(), 1)):
        config = parse_config("instance_group [{ kind: KIND_AUTO }]", "m")
        before = config.SerializeToString(deterministic=True)
        folder = write_model(tmp_path / (manifest.task if manifest else "tensors"), "m", manifest)
        plan = plan_of(folder, 1, config, settings, choose_device)
        if manifest is None:
            plan = plan.completed(GRAPH)
        assert config.SerializeToString(deterministic=True) == before
        shown = ModelConfig.FromString(plan.interface.shown)
        assert [group.count for group in shown.instance_group] == [count]


@pytest.mark.parametrize(("width", "is_served"), [(2, True), (3, False)])
def test_what_one_version_completes_holds_for_the_next(
    width: int, is_served: bool, tmp_path: Path
) -> None:
    """An empty configuration gets its tensors from version 1, and version 2 has to fit them."""
    for version in (1, 2):
        write_model(tmp_path, "m", config="version_policy { all {} }", version=version)

    def opened(graph: Path, _: SessionOptions) -> FakeSession:
        outputs = spec("y", "INT64", -1, 2 if graph.parent.name == "1" else width)
        return FakeSession(Signature(GRAPH.inputs, (outputs,)), lambda _: {})

    source, settings = ModelSource.of(tmp_path, "m"), Settings(device="cpu")
    refusal = pytest.raises(LoadError, match=r"output 'y' has dims \[2\], but the model has \[3\]")
    with nullcontext() if is_served else refusal:
        load_model(source, settings, Openers(opened))
