"""The machine's own limits, measured in the run whose figures are set beside them.

Memory bandwidth by a large copy on the device, the matrix rate by a square product, copies between
host and device, and what launching nothing costs. All through PyTorch, whose copies and products
are the vendor's. docs/cuda.md says what was verified on CUDA.
"""

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from loadtests.gpu.timing import Quartiles

# Far beyond the L2 of any GPU (60 MB on an H200), and a product that fills it for milliseconds.
COPY_BYTES, PRODUCT_SIZE, HOST_BYTES = 4 * 2**30, 8_192, 256 * 2**20
TINY_COPY_BYTES, TINY_PRODUCT_SIZE, TINY_HOST_BYTES = 16 * 2**20, 256, 2 * 2**20
NUM_LAUNCHES, ROUNDS, WARM_UP = 1_000, 11, 3
WAKING_S = 0.5  # of products before anything is timed: an idle GPU's clocks are low
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes and operations per second, and seconds; 0 for what the device does not have."""

    copy_bytes_per_s: float  # read and written bytes of a copy on the device
    flops_per_s: dict[str, float]  # of a matrix product, by precision
    to_device_bytes_per_s: dict[str, float]  # from pinned and from pageable memory
    to_host_bytes_per_s: dict[str, float]
    launch_s: float  # of an operator that does next to nothing, one after the other

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measured_limits(device: str, precisions: Iterable[str], *, is_tiny: bool) -> Limits:
    """The limits of a device; takes a second or two on a GPU."""
    sizes = (COPY_BYTES, PRODUCT_SIZE, HOST_BYTES)
    if is_tiny:
        sizes = (TINY_COPY_BYTES, TINY_PRODUCT_SIZE, TINY_HOST_BYTES)
    copy_bytes, product_size, host_bytes = sizes
    if device == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info()
        copy_bytes = min(copy_bytes, free_bytes // 16 * 4)  # a source and a target, of whole floats
        _wake(device, product_size)
    to_device, to_host = _host_copies(device, host_bytes) if device == "cuda" else ({}, {})
    return Limits(
        copy_bytes_per_s=_copy_rate(device, copy_bytes),
        flops_per_s={
            name: _product_rate(device, product_size, DTYPES[name]) for name in precisions
        },
        to_device_bytes_per_s=to_device,
        to_host_bytes_per_s=to_host,
        launch_s=_launch_s(device),
    )


def synchronize(device: str) -> None:
    """Wait for all work on the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def free_memory(device: str) -> None:
    """Give back what PyTorch holds of networks that are gone, compiled ones included."""
    torch.compiler.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def seconds_of(device: str, work: Callable[[], object], rounds: int = ROUNDS) -> Quartiles:
    """The time of work on the device, from its beginning to its end, after some warm-up."""
    taken_s = []
    for _ in range(WARM_UP + rounds):
        synchronize(device)
        started_s = time.perf_counter()
        work()
        synchronize(device)
        taken_s.append(time.perf_counter() - started_s)
    return Quartiles.of(taken_s[WARM_UP:])


def _wake(device: str, size: int) -> None:
    values = torch.randn(size, size, device=device).to(torch.bfloat16)
    ends_s = time.perf_counter() + WAKING_S
    while time.perf_counter() < ends_s:
        torch.mm(values, values)
        synchronize(device)


def _copy_rate(device: str, num_bytes: int) -> float:
    source = torch.ones(num_bytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / seconds_of(device, lambda: target.copy_(source)).median


def _product_rate(device: str, size: int, dtype: torch.dtype) -> float:
    """Of random numbers: zeros are multiplied faster, since fewer bits change."""
    generator = torch.Generator(device).manual_seed(1)
    one, other = (
        torch.randn(size, size, generator=generator, device=device).to(dtype) for _ in range(2)
    )
    result = torch.empty_like(one)
    return float(2 * size**3 / seconds_of(device, lambda: torch.mm(one, other, out=result)).median)


def _host_copies(device: str, num_bytes: int) -> tuple[dict[str, float], dict[str, float]]:
    on_device = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    to_device, to_host = {}, {}
    for name in ("pinned", "pageable"):
        on_host = torch.ones(num_bytes, dtype=torch.uint8, pin_memory=name == "pinned")
        there = seconds_of(device, lambda host=on_host: on_device.copy_(host))  # type: ignore[misc]
        back = seconds_of(device, lambda host=on_host: host.copy_(on_device))  # type: ignore[misc]
        to_device[name] = num_bytes / there.median
        to_host[name] = num_bytes / back.median
    return to_device, to_host


def _launch_s(device: str) -> float:
    value = torch.zeros(1, device=device)

    def launch() -> None:
        for _ in range(NUM_LAUNCHES):
            value.add_(1.0)

    return seconds_of(device, launch).median / NUM_LAUNCHES
