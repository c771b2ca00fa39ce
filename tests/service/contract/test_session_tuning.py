"""Triton's parameters and accelerators: what ONNX Runtime is told, and what is refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from service.contract.model_config import parse_config
from service.contract.session_tuning import SessionTuning, session_tuning
from service.errors import LoadError
from service.runtime.session import OnnxSession, SessionOptions, load_onnxruntime, providers_for
from tests.service.repository.test_plan import accelerator, parameter
from tests.service.runtime.test_session import write_graph

TENSORRT, CUDA = "TensorrtExecutionProvider", "CUDAExecutionProvider"
OPENVINO, CPU = "OpenVINOExecutionProvider", "CPUExecutionProvider"


def tuning_of(text: str) -> SessionTuning:
    return session_tuning(parse_config(text, "m"))


def options_of(session: OnnxSession) -> Any:
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
    tuning = tuning_of(" ".join(parameter(*each) for each in names.items()))
    # A thread that made such a session flushes subnormal numbers to zero from then on.
    with ThreadPoolExecutor(1) as thread:
        session = thread.submit(OnnxSession, graph, SessionOptions(tuning=tuning)).result()
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
    text = parameter("memory.enable_memory_arena_shrinkage", "cpu:0")
    x = np.ones((1, 4), np.float32)
    (y,) = OnnxSession(graph, SessionOptions(tuning=tuning_of(text))).run({"x": x}, ["y"])
    assert y.tolist() == (-x).tolist()
    text += parameter("enable_mem_arena", "0")
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
    ("mode", "expected"), [("FP32", ()), ("fp32", ()), ("BF16", (("trt_bf16_enable", "1"),))]
)
def test_full_precision_needs_no_option_of_tensorrt(
    mode: str, expected: tuple[tuple[str, str], ...]
) -> None:
    tuning = tuning_of(accelerator("gpu", "tensorrt", precision_mode=mode))
    assert [each.options for each in tuning.gpu_accelerators] == [expected]


def test_openvino_s_properties_are_written_anew() -> None:
    """What it is given was looked at: no second key of a name, no other number or spelling."""
    given = '{ "CPU": {"NUM_STREAMS": 9, "NUM_STREAMS": 2, "INFERENCE_PRECISION_HINT": "BF16"} }'
    text = accelerator("cpu", "openvino", load_config=given)
    name, options = providers_for(SessionOptions(tuning=tuning_of(text)), [OPENVINO, CPU])[0]
    assert name == OPENVINO
    expected = '{"CPU": {"INFERENCE_PRECISION_HINT": "bf16", "NUM_STREAMS": "2"}}'
    assert options == {"num_of_threads": "1", "load_config": expected}


def test_accelerators_come_before_the_device_s_own_provider() -> None:
    text = (
        "optimization { execution_accelerators {"
        " gpu_execution_accelerator [{ name: 'tensorrt'"
        " parameters { key: 'precision_mode' value: 'FP16' }"
        " parameters { key: 'max_workspace_size_bytes' value: '1024' } },"
        " { name: 'cuda' parameters { key: 'use_tf32' value: '0' } }]"
        " cpu_execution_accelerator { name: 'openvino'"
        " parameters { key: 'num_streams' value: '2' } } } }"
    ) + parameter("arena_extend_strategy", "1")
    options = SessionOptions(device="cuda", device_id=1, num_threads=3, tuning=tuning_of(text))
    assert providers_for(options, [TENSORRT, CUDA, OPENVINO, CPU]) == [
        (TENSORRT, {"trt_max_workspace_size": "1024", "trt_fp16_enable": "1", "device_id": "1"}),
        (CUDA, {"arena_extend_strategy": "kSameAsRequested", "use_tf32": "0", "device_id": "1"}),
        (OPENVINO, {"num_of_threads": "3", "num_streams": "2"}),
        (CPU, {}),
    ]


def test_a_provider_that_this_build_lacks_is_refused_with_what_it_offers() -> None:
    options = SessionOptions(tuning=tuning_of(accelerator("cpu", "openvino")))
    assert providers_for(options, [OPENVINO, CPU])[0] == (OPENVINO, {"num_of_threads": "1"})
    with pytest.raises(LoadError) as caught:
        providers_for(options, [CPU])
    assert str(caught.value) == (
        "config.pbtxt asks for OpenVINOExecutionProvider, but this build of ONNX Runtime offers "
        "['CPUExecutionProvider']"
    )


def test_openvino_s_switches_are_words() -> None:
    """It takes no other spelling."""
    text = accelerator("cpu", "openvino", disable_dynamic_shapes="1", enable_qdq_optimizer="FALSE")
    (openvino,) = tuning_of(text).cpu_accelerators
    assert dict(openvino.options) == {
        "disable_dynamic_shapes": "true",
        "enable_qdq_optimizer": "false",
    }


@pytest.mark.parametrize(
    "text", [accelerator("gpu", "tensorrt"), parameter("gpu_mem_limit", "1024")]
)
def test_what_is_for_a_gpu_is_refused_where_the_model_runs_on_the_cpu(text: str) -> None:
    options = SessionOptions(tuning=tuning_of(text))
    with pytest.raises(LoadError, match="but the model runs on the CPU"):
        providers_for(options, [TENSORRT, CUDA, CPU])
