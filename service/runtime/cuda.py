"""Whether CUDA can be used on this machine, and if not, why and what to do about it.

ONNX Runtime leaves a provider out whose library cannot be loaded, and gives the reason in its log
only. So the driver is queried and each library is loaded here, before a session needs them. Knows
no session. Its texts are those of onnxruntime-gpu 1.31.1 without a driver, without libraries, and
with a stub of the driver's library; unverified on CUDA: docs/how-to/cuda.md.
"""

import ctypes
from collections.abc import Callable
from typing import Any

DRIVER = "libcuda.so.1"  # comes with the driver of the machine; everything else is installed
# What the provider's library is linked with, by CUDA's major version. cuDNN, cuFFT and nvrtc are
# opened by the operators that need them.
LIBRARIES = ("libcublasLt.so.{}", "libcublas.so.{}", "libcurand.so.10", "libcudart.so.{}")
# The oldest driver branch for each major version, by CUDA's release notes.
DRIVER_BRANCHES = {12: "525", 13: "580"}
LIBRARIES_REMEDY = "install attendant[gpu,cudnn], which brings the libraries of CUDA and cuDNN"
DRIVER_REMEDY = (
    "install NVIDIA's driver on the machine, and give a container access to the GPU "
    "(docker run --gpus all)"
)
_DEVICE_REMEDY = (
    "check that nvidia-smi lists a GPU, that CUDA_VISIBLE_DEVICES does not hide it, and that the "
    "container has access to it"
)
_MISMATCH_REMEDY = (
    "restart the machine after an update of the driver, and give a container the driver's "
    "libraries of its machine"
)
# The driver's and the runtime's numbers of errors are the same here.
START_ERRORS = {
    34: f"the driver's library is a stub: {DRIVER_REMEDY}",
    46: "the GPU is busy or unavailable: look for a process that has it to itself (nvidia-smi)",
    100: f"no GPU is visible: {_DEVICE_REMEDY}",
    101: "there is no GPU of that number: see instance_group's gpus",
    209: (
        "this build of ONNX Runtime has no code for this GPU: onnxruntime-gpu 1.31.1 has it for "
        "compute capability 7.5, 8.0, 8.6, 8.9, 9.0 and 12.0"
    ),
    802: "the GPUs are not initialized yet: look at the service nvidia-fabricmanager",
    803: f"the driver and its library are of different versions: {_MISMATCH_REMEDY}",
    804: "the driver's compatibility library does not support this GPU: remove cuda-compat",
    999: f"the driver failed: {_MISMATCH_REMEDY}",
}

Load = Callable[[str], Any]  # a shared library by name, or `OSError`


def obstacle(cuda_version: str, load: Load = ctypes.CDLL) -> str:
    """Why a build for that version of CUDA cannot be used here; empty if it can."""
    try:
        driver = load(DRIVER)
    except OSError as error:
        return f"there is no NVIDIA driver ({error}): {DRIVER_REMEDY}"
    return _driver_obstacle(driver, cuda_version) or _library_obstacle(_major(cuda_version), load)


def too_old(cuda_version: str, found: str = "") -> str:
    """The text for a driver that is older than a build's version of CUDA."""
    major = _major(cuda_version)
    branch = DRIVER_BRANCHES.get(major)
    needed = f"driver {branch} or later" if branch else f"a driver for CUDA {major}"
    return f"the driver is too old{found}: ONNX Runtime is built for CUDA {major}, install {needed}"


def memory(device_id: int, cuda_version: str, load: Load = ctypes.CDLL) -> str:
    """Free memory of a GPU, as a clause; empty where it cannot be queried."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if not cuda_version:  # a build without CUDA
        return ""
    try:
        runtime = load(f"libcudart.so.{_major(cuda_version)}")
    except OSError:
        return ""
    if runtime.cudaSetDevice(device_id):
        return ""
    if runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)):
        return ""
    return f"{free.value / 2**20:,.1f} of {total.value / 2**20:,.1f} MiB of the GPU are free now"


def _major(cuda_version: str) -> int:
    return int(cuda_version.partition(".")[0])


def _driver_obstacle(driver: Any, cuda_version: str) -> str:  # noqa: ANN401 - a shared library
    error = driver.cuInit(0)
    if error:
        return START_ERRORS.get(error, f"the driver's cuInit failed with error {error}")
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    if version.value < 1_000 * _major(cuda_version):
        supported = f"{version.value // 1_000}.{version.value % 1_000 // 10}"
        return too_old(cuda_version, f", it supports CUDA up to {supported}")
    driver.cuDeviceGetCount(ctypes.byref(count))
    return "" if count.value else START_ERRORS[100]


def _library_obstacle(major: int, load: Load) -> str:
    missing = []
    for name in LIBRARIES:
        try:
            load(name.format(major))
        except OSError:
            missing.append(name.format(major))
    if not missing:
        return ""
    return f"{', '.join(missing)} cannot be loaded: {LIBRARIES_REMEDY}"
