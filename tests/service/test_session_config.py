"""Triton's parameters and accelerators: what ONNX Runtime is told, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from service.errors import LoadError
from service.model_config import parse_config
from service.runtime import OnnxSession, SessionOptions, load_onnxruntime, providers_for
from service.session_config import PARAMETERS, SessionTuning, session_tuning
from tests.service.test_runtime import write_graph

TENSORRT, CUDA = "TensorrtExecutionProvider", "CUDAExecutionProvider"
OPENVINO, CPU = "OpenVINOExecutionProvider", "CPUExecutionProvider"


def parameter_text(name: str, value: str) -> str:
    return f"parameters {{ key: '{name}' value {{ string_value: '{value}' }} }}"


def accelerator_text(side: str, name: str, **parameters: str) -> str:
    inner = " ".join(
        f"parameters {{ key: '{key}' value: '{value}' }}" for key, value in parameters.items()
    )
    return (
        f"optimization {{ execution_accelerators {{ {side}_execution_accelerator "
        f"{{ name: '{name}' {inner} }} }} }}"
    )


def tuning_of(text: str) -> SessionTuning:
    return session_tuning(parse_config(text, "m"))


def options_of(session: OnnxSession) -> Any:  # noqa: ANN401
    return session._session.get_session_options()


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    write_graph(path, "Neg", (TensorProto.FLOAT, TensorProto.FLOAT), (("rows", 4), ("rows", 4)))
    return path


def test_a_silent_configuration_changes_nothing() -> None:
    assert tuning_of("") == SessionTuning()


def test_parameters_reach_the_session(graph: Path) -> None:
    names = {
        "execution_mode": "1",
        "inter_op_thread_count": "3",
        "enable_mem_arena": "FALSE",
        "enable_mem_pattern": "0",
        "session.set_denormal_as_zero": "1",
        "session.intra_op.allow_spinning": "true",
        "memory.enable_memory_arena_shrinkage": "cpu:0",
    }
    tuning = tuning_of(" ".join(parameter_text(*each) for each in names.items()))
    session = OnnxSession(graph, SessionOptions(tuning=tuning))
    options = options_of(session)
    ort = load_onnxruntime()
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert options.inter_op_num_threads == 3
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern
    assert options.get_session_config_entry("session.set_denormal_as_zero") == "1"
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "1"
    assert tuning.run_entries == (("memory.enable_memory_arena_shrinkage", "cpu:0"),)


def test_a_run_entry_reaches_every_run(graph: Path) -> None:
    """Shrinking needs an arena: without one ONNX Runtime refuses the run, so it was told."""
    text = parameter_text("memory.enable_memory_arena_shrinkage", "cpu:0")
    x = np.ones((1, 4), np.float32)
    (y,) = OnnxSession(graph, SessionOptions(tuning=tuning_of(text))).run({"x": x}, ["y"])
    assert y.tolist() == (-x).tolist()
    text += parameter_text("enable_mem_arena", "0")
    with pytest.raises(Exception, match="arena"):
        OnnxSession(graph, SessionOptions(tuning=tuning_of(text))).run({"x": x}, ["y"])


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (-1, "ORT_ENABLE_BASIC"),
        (0, "ORT_ENABLE_ALL"),
        (1, "ORT_ENABLE_EXTENDED"),
        (2, "ORT_DISABLE_ALL"),
    ],
)
def test_graph_levels_are_triton_s_numbers(graph: Path, level: int, expected: str) -> None:
    tuning = tuning_of(f"optimization {{ graph {{ level: {level} }} }}")
    session = OnnxSession(graph, SessionOptions(tuning=tuning))
    assert options_of(session).graph_optimization_level.name == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("FP32", ()), ("fp32", ()), ("BF16", (("trt_bf16_enable", "1"),))],
)
def test_full_precision_needs_no_option_of_tensorrt(
    mode: str, expected: tuple[tuple[str, str], ...]
) -> None:
    tuning = tuning_of(accelerator_text("gpu", "tensorrt", precision_mode=mode))
    assert [accelerator.options for accelerator in tuning.gpu_accelerators] == [expected]


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_refuses_what_it_cannot_be(name: str) -> None:
    with pytest.raises(LoadError, match=f"parameter '{name}' is 'no such', expected "):
        parse_config(parameter_text(name, "no such"), "m")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (parameter_text("intra_op_thread_count", "1025"), "a whole number of at most 1024"),
        (parameter_text("inter_op_thread_count", "9" * 5_000), "a whole number of at most 1024"),
        (parameter_text("execution_mode", "2"), "expected 0 or 1"),
        (parameter_text("share_session_between_instances", "false"), "share one session"),
        ("optimization { graph { level: 3 } }", "graph.level is 3, expected one of [-1, 0, 1, 2]"),
        (
            accelerator_text("gpu", "auto"),
            "unknown Execution Accelerator 'auto' is requested, "
            "expected one of ['cuda', 'tensorrt']",
        ),
        (accelerator_text("cpu", "tensorrt"), "unknown Execution Accelerator 'tensorrt'"),
        (accelerator_text("cpu", ""), "unknown Execution Accelerator ''"),
        (
            accelerator_text("gpu", "tensorrt", trt_extra_plugin_lib_paths="/tmp/evil.so"),
            "parameter 'trt_extra_plugin_lib_paths' of 'tensorrt' is not supported",
        ),
        (
            accelerator_text("gpu", "tensorrt", trt_engine_cache_path="/etc"),
            "parameter 'trt_engine_cache_path' of 'tensorrt' is not supported",
        ),
        (
            accelerator_text("gpu", "cuda", user_compute_stream="140737"),
            "parameter 'user_compute_stream' of 'cuda' is not supported",
        ),
        (
            accelerator_text("cpu", "openvino", cache_dir="/etc"),
            "parameter 'cache_dir' of 'openvino' is not supported",
        ),
        (
            accelerator_text("gpu", "tensorrt", precision_mode="INT4"),
            "parameter 'precision_mode' is 'INT4', expected FP32, FP16, BF16 or INT8",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_be_right(text: str, part: str) -> None:
    with pytest.raises(LoadError) as caught:
        parse_config(text, "m")
    assert part in str(caught.value)
    assert len(str(caught.value)) < 1_500


def test_openvino_s_properties_are_written_anew() -> None:
    """What it is given was looked at: no second key of a name, no other number or spelling."""
    given = '{ "CPU": {"NUM_STREAMS": 9, "NUM_STREAMS": 2, "INFERENCE_PRECISION_HINT": "BF16"} }'
    text = accelerator_text("cpu", "openvino", load_config=given)
    name, options = providers_for(SessionOptions(tuning=tuning_of(text)), [OPENVINO, CPU])[0]
    assert name == OPENVINO
    expected = '{"CPU": {"INFERENCE_PRECISION_HINT": "bf16", "NUM_STREAMS": "2"}}'
    assert options == {"num_of_threads": "1", "load_config": expected}


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("/etc/passwd", "is '/etc/passwd', expected JSON of at most 1024 characters like"),
        ("", "expected JSON"),
        ("[" * 1_000, "expected JSON"),
        ("{" + " " * 1_024 + "}", "expected JSON"),
        ("[]", "expected JSON"),
        ('{"GPU": {}}', "expected JSON"),
        ('{"CPU": "config.json"}', "expected JSON"),
        ('{"CPU": {"CACHE_DIR": "/tmp"}}', "of CPU it knows INFERENCE_PRECISION_HINT, "),
        ('{"CPU": {"NUM_STREAMS": {"x": 1}}}', "expected JSON"),
        ('{"CPU": {"NUM_STREAMS": 256}}', "CPU.NUM_STREAMS is '256', expected a whole number"),
        ('{"CPU": {"NUM_STREAMS": true}}', "CPU.NUM_STREAMS is 'True', expected a whole number"),
        (
            '{"CPU": {"INFERENCE_PRECISION_HINT": "int4"}}',
            "CPU.INFERENCE_PRECISION_HINT is 'int4', expected one of f32, bf16, f16",
        ),
    ],
)
def test_properties_that_openvino_shall_not_see_are_refused(value: str, part: str) -> None:
    with pytest.raises(LoadError) as caught:
        parse_config(accelerator_text("cpu", "openvino", load_config=value), "m")
    assert "parameter 'load_config'" in str(caught.value)
    assert part in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_an_accelerator_twice_is_refused() -> None:
    text = (
        "optimization { execution_accelerators {"
        " cpu_execution_accelerator [{ name: 'openvino' }, { name: 'openvino' }] } }"
    )
    with pytest.raises(LoadError, match="cpu_execution_accelerator has 'openvino' twice"):
        parse_config(text, "m")


def test_accelerators_come_before_the_device_s_own_provider() -> None:
    text = (
        "optimization { execution_accelerators {"
        " gpu_execution_accelerator [{ name: 'tensorrt'"
        " parameters { key: 'precision_mode' value: 'FP16' }"
        " parameters { key: 'max_workspace_size_bytes' value: '1024' } },"
        " { name: 'cuda' parameters { key: 'use_tf32' value: '0' } }]"
        " cpu_execution_accelerator { name: 'openvino'"
        " parameters { key: 'num_streams' value: '2' } } } }"
    ) + parameter_text("arena_extend_strategy", "1")
    options = SessionOptions(device="cuda", device_id=1, num_threads=3, tuning=tuning_of(text))
    assert providers_for(options, [TENSORRT, CUDA, OPENVINO, CPU]) == [
        (TENSORRT, {"trt_max_workspace_size": "1024", "trt_fp16_enable": "1", "device_id": "1"}),
        (CUDA, {"arena_extend_strategy": "kSameAsRequested", "use_tf32": "0", "device_id": "1"}),
        (OPENVINO, {"num_of_threads": "3", "num_streams": "2"}),
        (CPU, {}),
    ]


def test_a_provider_that_this_build_lacks_is_refused_with_what_it_offers() -> None:
    options = SessionOptions(tuning=tuning_of(accelerator_text("cpu", "openvino")))
    assert providers_for(options, [OPENVINO, CPU])[0] == (OPENVINO, {"num_of_threads": "1"})
    with pytest.raises(LoadError) as caught:
        providers_for(options, [CPU])
    assert str(caught.value) == (
        "config.pbtxt asks for OpenVINOExecutionProvider, but this build of ONNX Runtime offers "
        "['CPUExecutionProvider']"
    )


def test_openvino_s_switches_are_words() -> None:
    """It takes no other spelling."""
    text = accelerator_text(
        "cpu", "openvino", disable_dynamic_shapes="1", enable_qdq_optimizer="FALSE"
    )
    (accelerator,) = tuning_of(text).cpu_accelerators
    assert dict(accelerator.options) == {
        "disable_dynamic_shapes": "true",
        "enable_qdq_optimizer": "false",
    }


@pytest.mark.parametrize(
    "text", [accelerator_text("gpu", "tensorrt"), parameter_text("gpu_mem_limit", "1024")]
)
def test_what_is_for_a_gpu_is_refused_where_the_model_runs_on_the_cpu(text: str) -> None:
    options = SessionOptions(tuning=tuning_of(text))
    with pytest.raises(LoadError, match="but the model runs on the CPU"):
        providers_for(options, [TENSORRT, CUDA, CPU])
