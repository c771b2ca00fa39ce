"""ONNX Runtime's texts about a device, and what is made of them.

Texts of loading are those of onnxruntime-gpu 1.31.1 with a stub of the driver's library; those of
runs are from reports of users, with the CUDA runtime's own words for each error.
"""

import pytest

from service.errors import DeviceFailed, LoadError, ModelFailed, OutOfMemory
from service.runtime.device_errors import failing_as_run, failure_of_run, reason_of_load

OPTIONS_PREFIX = (
    "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_execution_provider_info.cc:63 static "
    "onnxruntime::CUDAExecutionProviderInfo onnxruntime::CUDAExecutionProviderInfo::"
    "FromProviderOptions(const onnxruntime::ProviderOptions&) [ONNXRuntimeError] : 1 : FAIL : "
    'provider_options_utils.h:187 Parse Failed to parse provider option "device_id": '
)
COUNT = (
    " ; GPU=-1 ; hostname=vm ; "
    "file=/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_execution_provider_info.cc ; "
    "line=70 ; expr=cudaGetDeviceCount(&num_devices); \n"
)
NODE = "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running "
ARENA = (
    "/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* onnxruntime::BFCArena::"
    "AllocateRawInternal(size_t, bool, onnxruntime::Stream*, bool, onnxruntime::WaitNotificationFn)"
    " Failed to allocate memory for requested buffer of size 2830172160\n"
)
LIMIT = (
    "/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::"
    "AllocateRawInternal(size_t, bool, onnxruntime::Stream*, bool, onnxruntime::WaitNotificationFn)"
    " Available memory of 0 is smaller than requested bytes of 1048576\n"
)
CUBLAS = (
    "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; hostname=egg ; "
    "file=/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_stream_handle.cc ; line=73 ; "
    "expr=cublasCreate(&cublas_handle_);"
)


def of_run(number: int, words: str) -> str:
    return (
        f"{NODE}MatMul node. Name:'/layer0/mlp' Status Message: CUDA failure {number}: {words} ; "
        "GPU=0 ; hostname=vm ; file=/onnxruntime_src/onnxruntime/core/providers/cuda/gpu_data_"
        "transfer.cc ; line=73 ; expr=cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost);"
    )


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (214, "uncorrectable ECC error encountered"),
        (220, "uncorrectable NVLink error detected during the execution"),
        (226, "Invalid access of peer GPU memory over nvlink or a hardware error"),
        (700, "an illegal memory access was encountered"),
        (702, "the launch timed out and was terminated"),
        (709, "context is destroyed"),
        (710, "device-side assert triggered"),
        (714, "hardware stack error"),
        (715, "an illegal instruction was encountered"),
        (716, "misaligned address"),
        (717, "operation not supported on global/shared address space"),
        (718, "invalid program counter"),
        (719, "unspecified launch failure"),
        (721, "tensor memory not completely freed"),
        (810, "the MPS client has been terminated by the server"),
        (999, "unknown error"),
    ],
)
def test_an_error_after_which_a_process_cannot_use_cuda_is_a_lost_device(
    number: int, words: str
) -> None:
    text = of_run(number, words)
    assert type(failure_of_run(text, "cuda")) is DeviceFailed
    assert str(failure_of_run(text, "cuda")) == text
    assert type(failure_of_run(text, "cpu")) is ModelFailed


@pytest.mark.parametrize(
    "text", [f"{NODE}Mul node. Name:'m' Status Message: {ARENA}", LIMIT, CUBLAS, "std::bad_alloc"]
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_run_without_memory_leaves_the_device_usable(device: str, text: str) -> None:
    assert type(failure_of_run(text, device)) is OutOfMemory
    assert str(failure_of_run(text, device)) == text
    assert type(failure_of_run(of_run(2, "out of memory"), device)) is OutOfMemory


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: device-side assert triggered",
        "CUDA error: unspecified launch failure",
        "CUDA error: the launch timed out and was terminated",
        "CUDA error: misaligned address",
        "CUDA error: an illegal instruction was encountered",
        "CUDA error: invalid program counter",
        "CUDA error: operation not supported on global/shared address space",
        "CUDA error: hardware stack error",
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: uncorrectable NVLink error detected during the execution",
    ],
)
def test_a_text_without_a_number_is_known_by_its_words(words: str) -> None:
    assert type(failure_of_run(words, "cuda")) is DeviceFailed


def test_whatever_is_raised_while_a_device_is_used_is_an_error_of_its_run() -> None:
    """Copies to it and from it raise plain errors; our own pass as they are."""
    text = of_run(700, "an illegal memory access was encountered")
    with pytest.raises(DeviceFailed) as lost, failing_as_run("cuda"):
        raise RuntimeError(text)
    assert str(lost.value) == text
    with pytest.raises(ModelFailed, match="no name"), failing_as_run("cuda"):
        raise ValueError("no name 'x'")
    with pytest.raises(LoadError, match="as it is"), failing_as_run("cuda"):
        raise LoadError("as it is")


@pytest.mark.parametrize(
    "text",
    [
        of_run(1, "invalid argument"),
        of_run(701, "too many resources requested for launch"),
        "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: x",
    ],
)
def test_any_other_error_fails_its_run_only(text: str) -> None:
    assert type(failure_of_run(text, "cuda")) is ModelFailed


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (
            "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
            "CUDA cannot be used: the driver is too old: ONNX Runtime is built for CUDA 13, "
            "install driver 580 or later",
        ),
        (
            "CUDA failure 36: API call is not supported in the installed CUDA driver",
            "CUDA cannot be used: the driver is too old: ONNX Runtime is built for CUDA 13, "
            "install driver 580 or later",
        ),
        (
            "CUDA failure 100: no CUDA-capable device is detected",
            "CUDA cannot be used: no GPU is visible: check that nvidia-smi lists a GPU, that "
            "CUDA_VISIBLE_DEVICES does not hide it, and that the container has access to it",
        ),
        (
            "CUDA failure 803: system has unsupported display driver / cuda driver combination",
            "CUDA cannot be used: the driver and its library are of different versions: restart "
            "the machine after an update of the driver, and give a container the driver's "
            "libraries of its machine",
        ),
        (
            "CUDA failure 999: unknown error",
            "CUDA cannot be used: the driver failed: restart the machine after an update of the "
            "driver, and give a container the driver's libraries of its machine",
        ),
    ],
)
def test_what_a_load_meets_is_one_sentence_with_a_way_out(failure: str, reason: str) -> None:
    text = OPTIONS_PREFIX + failure + COUNT
    assert reason_of_load(text, "cuda", 0, "13.0") == reason
    assert reason_of_load(text, "cpu", 0, "") == text


def test_a_gpu_that_is_not_there_is_named_with_how_many_there_are() -> None:
    text = f"{OPTIONS_PREFIX}Invalid device ID: 3, must be between 0 (inclusive) and 2 (exclusive)."
    assert reason_of_load(text, "cuda", 0, "13.0") == (
        "instance_group asks for GPU 3, but this machine has 2, counted from 0"
    )


def test_a_load_on_a_lost_device_says_that_only_a_restart_helps() -> None:
    text = of_run(700, "an illegal memory access was encountered")
    assert reason_of_load(text, "cuda", 0, "13.0") == (
        f"the device is lost until this process ends, restart the server: {text}"
    )


def test_an_error_that_is_not_of_the_device_stays_as_it_is() -> None:
    for text in ("Load model from m.onnx failed:Protobuf parsing failed.", of_run(1, "invalid")):
        assert reason_of_load(text, "cuda", 0, "13.0") == text


def test_too_little_memory_says_how_much_for_what_and_what_to_lower() -> None:
    weights = 3 * 2**30
    assert reason_of_load(ARENA, "cuda", weights, "13.0") == (
        "too little memory on cuda: the files of the graph have 3,072.0 MiB, and 2,699.1 MiB more "
        "were refused: serve fewer models per GPU, lower kv_cache_bytes of generative models, or "
        "raise gpu_mem_limit where it is set"
    )
    assert reason_of_load(ARENA, "cuda", weights, "13.0", lambda: "2 MiB are free").startswith(
        "too little memory on cuda: the files of the graph have 3,072.0 MiB, 2 MiB are free, and "
    )
    assert "and 1.0 MiB more were refused" in reason_of_load(LIMIT, "cuda", weights, "13.0")
    assert reason_of_load(CUBLAS, "cuda", weights, "13.0").startswith(
        f"too little memory on cuda: the files of the graph have 3,072.0 MiB, and {CUBLAS}"
    )
    for num_bytes, shown in ((0, "0 bytes"), (2**20 - 1, "1,048,575 bytes"), (2**20, "1.0 MiB")):
        assert f"have {shown}, and" in reason_of_load(ARENA, "cuda", num_bytes, "13.0")
    assert reason_of_load("std::bad_alloc", "cpu", weights, "") == (
        "too little memory on cpu: the files of the graph have 3,072.0 MiB, and std::bad_alloc: "
        "serve fewer models, or lower kv_cache_bytes"
    )
