"""Whether CUDA can be used, with stand-ins for the driver and its libraries."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from service.runtime.cuda import DRIVER, memory, obstacle

LIBRARIES = ("libcublasLt.so.13", "libcublas.so.13", "libcurand.so.10", "libcudart.so.13")


class Driver:
    """The driver's library, as far as it is queried."""

    def __init__(self, error: int = 0, version: int = 13_000, num_devices: int = 1) -> None:
        self._error, self._version, self._num_devices = error, version, num_devices

    def cuInit(self, flags: int) -> int:  # noqa: N802 - its name
        assert flags == 0, "NVIDIA's documentation allows no other"
        return self._error

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = self._version
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self._num_devices
        return self._error


def machine(driver: Driver | None, *missing: str) -> Callable[[str], Any]:
    """A machine's libraries by name, with dlopen's text for those that are missing."""

    def load(name: str) -> object:
        is_there = driver is not None if name == DRIVER else name not in missing
        if not is_there:
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        return driver if name == DRIVER else ctypes.c_int()

    return load


def test_a_machine_with_a_driver_a_gpu_and_the_libraries_has_no_obstacle() -> None:
    assert obstacle("13.0", machine(Driver())) == ""
    assert obstacle("13.0", machine(Driver(version=14_010, num_devices=8))) == ""
    assert obstacle("12.8", machine(Driver(version=12_000))) == ""
    assert obstacle("13.0.1", machine(Driver())) == ""


@pytest.mark.parametrize(
    ("driver", "missing", "reason"),
    [
        (
            None,
            LIBRARIES,
            "there is no NVIDIA driver (libcuda.so.1: cannot open shared object file: No such file "
            "or directory): install NVIDIA's driver on the machine, and give a container access to "
            "the GPU (docker run --gpus all)",
        ),
        (
            Driver(version=12_040),
            (),
            "the driver is too old, it supports CUDA up to 12.4: ONNX Runtime is built for CUDA "
            "13, install driver 580 or later",
        ),
        (
            Driver(version=12_000),
            (),
            "the driver is too old, it supports CUDA up to 12.0: ONNX Runtime is built for CUDA "
            "13, install driver 580 or later",
        ),
        (
            Driver(error=100, num_devices=0),
            (),
            "no GPU is visible: check that nvidia-smi lists a GPU, that CUDA_VISIBLE_DEVICES does "
            "not hide it, and that the container has access to it",
        ),
        (
            Driver(error=803),
            (),
            "the driver and its library are of different versions: restart the machine after an "
            "update of the driver, and give a container the driver's libraries of its machine",
        ),
        (
            Driver(),
            ("libcublasLt.so.13", "libcublas.so.13"),
            "libcublasLt.so.13, libcublas.so.13 cannot be loaded: install attendant[gpu,cudnn], "
            "which brings the libraries of CUDA and cuDNN",
        ),
        (Driver(error=304), (), "the driver's cuInit failed with error 304"),
    ],
)
def test_each_obstacle_has_one_sentence_with_a_way_out(
    driver: Driver | None, missing: tuple[str, ...], reason: str
) -> None:
    assert obstacle("13.0", machine(driver, *missing)) == reason


def test_a_driver_without_devices_shows_no_gpu() -> None:
    assert obstacle("13.0", machine(Driver(num_devices=0))).startswith("no GPU is visible")


def test_a_build_for_a_later_cuda_names_it_where_its_driver_branch_is_not_known() -> None:
    assert obstacle("14.0", machine(Driver())).endswith("install a driver for CUDA 14")


class Runtime:
    """CUDA's runtime library, as far as it is queried."""

    def __init__(self, error: int = 0) -> None:
        self._error = error
        self.devices: list[int] = []

    def cudaSetDevice(self, device: int) -> int:  # noqa: N802
        self.devices.append(device)
        return 101 if device > 7 else 0

    def cudaMemGetInfo(self, free: Any, total: Any) -> int:  # noqa: N802
        free._obj.value, total._obj.value = 3 * 2**30, 141 * 2**30
        return self._error


def test_the_free_memory_of_the_device_is_read_where_it_can_be() -> None:
    """Of GPU 2; nothing where the runtime's library is missing or fails."""
    runtime = Runtime()
    loaded: list[str] = []

    def load(name: str) -> Runtime:
        loaded.append(name)
        return runtime

    assert memory(2, "13.0", load) == "3,072.0 of 144,384.0 MiB of the GPU are free now"
    assert (loaded, runtime.devices) == (["libcudart.so.13"], [2])
    assert memory(2, "13.0", lambda _: Runtime(error=700)) == ""
    assert memory(2, "", load) == ""
    assert memory(8, "13.0", load) == ""
    assert memory(0, "13.0", machine(None, "libcudart.so.13")) == ""
