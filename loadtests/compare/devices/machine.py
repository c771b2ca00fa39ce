"""The limits of a device, which figures stand beside: memory, matrix products and launches.

Measured through PyTorch in the same run. docs/how-to/cuda.md says what was verified on CUDA.
"""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Far beyond the L2 of any GPU (60 MB on an H200), and a product that fills it for milliseconds.
COPY_BYTES, PRODUCT_SIZE = 4 * 2**30, 8_192
TINY_COPY_BYTES, TINY_PRODUCT_SIZE = 16 * 2**20, 256
LIMIT_ROUNDS, WAKING_S = 11, 0.5  # of products before anything is timed: idle clocks are low


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Bytes and operations per second, and seconds, of the device."""

    copy_bytes_per_s: float  # read and written bytes of a copy on the device
    flops_per_s: dict[str, float]  # of a matrix product, by precision
    launch_s: float  # of an operator that does next to nothing, one after the other


@cache
def machine_limits(device: str, *, is_tiny: bool) -> MachineLimits:
    """The limits of the device, through PyTorch; takes a second or two on a GPU."""
    copy_bytes, size = (
        (TINY_COPY_BYTES, TINY_PRODUCT_SIZE) if is_tiny else (COPY_BYTES, PRODUCT_SIZE)
    )
    if device == "cuda":
        copy_bytes = min(copy_bytes, torch.cuda.mem_get_info()[0] // 16 * 4)
    source = torch.ones(copy_bytes // 4, dtype=torch.float32, device=device)
    target, one = torch.empty_like(source), torch.zeros(1, device=device)
    precisions = ("fp32", "bf16") if device == "cpu" else ("fp16", "bf16")
    return MachineLimits(
        2 * copy_bytes / _seconds_of(device, lambda: target.copy_(source)),
        {name: _product_rate(device, size, DTYPES[name]) for name in precisions},
        _seconds_of(device, lambda: [one.add_(1.0) for _ in range(100)]) / 100,
    )


def _seconds_of(device: str, work: Callable[[], object]) -> float:
    """The time of work on the device, from its beginning to its end, after some warm-up."""
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else tuple
    taken_s: list[float] = []
    ends_s = time.perf_counter() + (WAKING_S if device == "cuda" else 0.0)
    while time.perf_counter() < ends_s or len(taken_s) < LIMIT_ROUNDS:
        wait()
        started_s = time.perf_counter()
        work()
        wait()
        taken_s.append(time.perf_counter() - started_s)
    return statistics.median(taken_s[-LIMIT_ROUNDS:])


def _product_rate(device: str, size: int, dtype: torch.dtype) -> float:
    """Of random numbers: zeros are multiplied faster, since fewer bits change."""
    generator = torch.Generator(device).manual_seed(1)
    one, other = (
        torch.randn(size, size, generator=generator, device=device).to(dtype) for _ in range(2)
    )
    result = torch.empty_like(one)
    return 2 * size**3 / _seconds_of(device, lambda: torch.mm(one, other, out=result))


def free_memory(device: str) -> None:
    """Give back what PyTorch holds of networks that are gone, compiled ones included."""
    torch.compiler.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
