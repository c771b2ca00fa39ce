"""Meaning of ONNX Runtime's errors of a device: for the run, the model, and the operator.

Pure: texts in, errors out. The texts are onnxruntime-gpu 1.31.1's, whose numbers and names of
errors are the CUDA runtime's (cudaError_t); unverified on CUDA: docs/how-to/cuda.md.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from service.errors import AttendantError, DeviceFailed, ModelFailed, OutOfMemory
from service.runtime.cuda import START_ERRORS, too_old

# After these a process cannot use the device any more (NVIDIA's CUDA Runtime API, cudaError_t:
# "to continue using CUDA, the process must be terminated and relaunched"), or the device itself is
# at fault; 999 is what a device gives that fell off the bus. Running out of memory is not among
# them.
LOST = frozenset((214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 999))
# The words of most of them, for texts without a number.
LOST_WORDS = (
    "illegal memory access",
    "device-side assert",
    "unspecified launch failure",
    "launch timed out",
    "misaligned address",
    "illegal instruction",
    "invalid program counter",
    "not supported on global/shared address space",
    "hardware stack error",
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
)
MEMORY_ERRORS = (
    "failed to allocate memory for requested buffer of size",
    "is smaller than requested bytes of",  # the arena's limit, gpu_mem_limit
    "cuda failure 2:",
    "cuda error: out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "bad_alloc",
)
_NUMBER = re.compile(r"CUDA failure (\d+):")
_ORDINAL = re.compile(r"Invalid device ID: (\d+), must be between 0 \(inclusive\) and (\d+)")
_SIZES = (
    re.compile(r"requested buffer of size (\d+)"),
    re.compile(r"smaller than requested bytes of (\d+)"),
)
DRIVER_TOO_OLD = (35, 36)
NO_CUDNN = "cuDNN is unavailable"
MEMORY_REMEDY = (
    "serve fewer models per GPU, lower kv_cache_bytes of generative models, or raise gpu_mem_limit "
    "where it is set"
)


def is_sticky(text: str) -> bool:
    """Whether no run of this process will succeed on the device."""
    if match := _NUMBER.search(text):
        return int(match[1]) in LOST
    return any(words in text.lower() for words in LOST_WORDS)


def is_out_of_memory(text: str) -> bool:
    return any(error in text.lower() for error in MEMORY_ERRORS)


def failure_of_run(text: str, device: str) -> ModelFailed:
    """The error of a run that failed with this text."""
    if device != "cpu" and is_sticky(text):
        return DeviceFailed(text)
    return OutOfMemory(text) if is_out_of_memory(text) else ModelFailed(text)


@contextmanager
def failing_as_run(device: str) -> Iterator[None]:
    """Whatever ONNX Runtime raises inside of it is the error of a run on that device."""
    try:
        yield
    except (AttendantError, AssertionError):
        raise
    except Exception as error:  # ORT's errors share no narrower base class
        raise failure_of_run(str(error), device) from error


def reason_of_load(
    text: str,
    device: str,
    num_bytes: int,
    cuda_version: str,
    free_memory: Callable[[], str] = str,
) -> str:
    """Why a graph whose files have `num_bytes` was not opened, and what to do where that is known.

    A text that is not of a device stays as it is. `free_memory` is asked where there is too little.
    """
    if is_out_of_memory(text):
        needed = f"the files of the graph have {megabytes(num_bytes)}"
        return out_of_memory(device, ", ".join(filter(None, (needed, free_memory()))), text)
    if device == "cpu":
        return text
    if match := _ORDINAL.search(text):
        number, count = match.groups()
        return f"instance_group asks for GPU {number}, but this machine has {count}, counted from 0"
    if NO_CUDNN in text:
        return f"an operator of the model needs cuDNN, install attendant[gpu,cudnn]: {text}"
    match = _NUMBER.search(text)
    error = int(match[1]) if match else None
    if error in DRIVER_TOO_OLD and cuda_version:
        return f"CUDA cannot be used: {too_old(cuda_version)}"
    if error in START_ERRORS:
        return f"CUDA cannot be used: {START_ERRORS[error]}"
    if is_sticky(text):
        return f"the device is lost until this process ends, restart the server: {text}"
    return text


def out_of_memory(device: str, purpose: str, text: str) -> str:
    """The text for memory that a model needs and the device does not have."""
    size = next((match[1] for each in _SIZES if (match := each.search(text))), None)
    failed = f"{megabytes(int(size))} more were refused" if size else text
    remedy = MEMORY_REMEDY if device != "cpu" else "serve fewer models, or lower kv_cache_bytes"
    return f"too little memory on {device}: {purpose}, and {failed}: {remedy}"


def megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB" if num_bytes >= 2**20 else f"{num_bytes:,} bytes"
