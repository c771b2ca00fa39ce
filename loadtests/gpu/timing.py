"""Times of several ways to do the same work, taken in turns, and the machine's own limits.

The ways of one round are compared with each other, so that a clock that changes, or other work on
the machine, changes them alike. Rounds go on until there are enough or the time is over. The limits
are measured through PyTorch in the same run: every figure stands beside them.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from loadtests.gpu.context import Context
from loadtests.load.turns import turns
from service.errors import AttendantError

MAX_ROUNDS, MIN_ROUNDS, TINY_ROUNDS, WARM_UP = 100, 3, 3, 1
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Far beyond the L2 of any GPU (60 MB on an H200), and a product that fills it for milliseconds.
COPY_BYTES, PRODUCT_SIZE = 4 * 2**30, 8_192
TINY_COPY_BYTES, TINY_PRODUCT_SIZE = 16 * 2**20, 256
LIMIT_ROUNDS, WAKING_S = 11, 0.5  # of products before anything is timed: idle clocks are low

Way = Callable[[], object]  # does the work once, and returns when it is done
Seconds = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The median of some figures, the quartiles around it, and how many there were."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quartiles":
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    def per_second(self, amount: float) -> "Quartiles":
        """The figures of `amount` units of work, where these are seconds."""
        return Quartiles(amount / self.median, amount / self.high, amount / self.low, self.count)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def interleaved(
    ways: Mapping[str, Way], time_s: float, *, max_rounds: int = MAX_ROUNDS, warm_up: int = WARM_UP
) -> Seconds:
    """The seconds of each way in the same rounds; at least `MIN_ROUNDS`, whatever the time.

    A round that is not whole is left out.
    """
    seconds: Seconds = {name: [] for name in ways}
    started_s = time.perf_counter()
    gc.collect()
    gc.disable()  # a collection would be in one way's time
    try:
        for name, counts in turns(ways, max_rounds, warm_up):
            num_rounds = min(map(len, seconds.values()))
            is_round_over = len({len(each) for each in seconds.values()}) == 1
            is_late = time.perf_counter() - started_s > time_s
            if is_round_over and num_rounds >= MIN_ROUNDS and is_late:
                break
            begun_s = time.perf_counter()
            ways[name]()
            if counts:
                seconds[name].append(time.perf_counter() - begun_s)
    finally:
        gc.enable()
    return seconds


def ratios(ours_s: Sequence[float], theirs_s: Sequence[float]) -> Quartiles:
    """Speed of ours over theirs, from the seconds of the same rounds."""
    return Quartiles.of([theirs / ours for ours, theirs in zip(ours_s, theirs_s, strict=True)])


def fastest(seconds: Seconds, beginning: str = "ours") -> str:
    """The fastest of the ways whose names begin so; empty where there is none."""
    own = {name: statistics.median(each) for name, each in seconds.items()}
    own = {name: median for name, median in own.items() if name.startswith(beginning)}
    return min(own, key=lambda name: own[name], default="")


def write_rows(
    context: Context,
    table: str,
    where: Mapping[str, object],
    seconds: Seconds,
    amount: tuple[float, str],
    more: Callable[[str, float], Mapping[str, object]] = lambda *_: {},
) -> str:
    """A row for each way: its rate, `more` of its median, and our fastest over it; that way."""
    ours = fastest(seconds)
    for way, taken in seconds.items():
        own = Quartiles.of(taken)
        cells = {"way": way, amount[1]: own.per_second(amount[0]).to_dict(), "rounds": own.count}
        cells |= {"seconds": own.to_dict(), **more(way, own.median)}
        if ours and not way.startswith("ours"):
            cells["ours over it"] = ratios(seconds[ours], taken).to_dict()
        context.row(table, **where, **cells)
    context.keep()
    return ours


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Bytes and operations per second, and seconds, of the device."""

    copy_bytes_per_s: float  # read and written bytes of a copy on the device
    flops_per_s: dict[str, float]  # of a matrix product, by precision
    launch_s: float  # of an operator that does next to nothing, one after the other


def measured_limits(context: Context, precisions: Iterable[str]) -> MachineLimits:
    """The limits of the device; takes a second or two on a GPU."""
    device = context.device
    copy_bytes, size = (
        (TINY_COPY_BYTES, TINY_PRODUCT_SIZE) if context.is_tiny else (COPY_BYTES, PRODUCT_SIZE)
    )
    if device == "cuda":
        copy_bytes = min(copy_bytes, torch.cuda.mem_get_info()[0] // 16 * 4)
    source = torch.ones(copy_bytes // 4, dtype=torch.float32, device=device)
    target, one = torch.empty_like(source), torch.zeros(1, device=device)
    rates = {name: _product_rate(device, size, DTYPES[name]) for name in precisions}
    limits = MachineLimits(
        2 * copy_bytes / seconds_of(device, lambda: target.copy_(source)),
        rates,
        seconds_of(device, lambda: [one.add_(1.0) for _ in range(100)]) / 100,
    )
    free_memory(device)
    what = "The machine's limits"
    context.row(what, limit="memory, copied", measured=f"{limits.copy_bytes_per_s / 1e9:,.0f} GB/s")
    for name, rate in rates.items():
        context.row(what, limit=f"product, {name}", measured=f"{rate / 1e12:,.3g} TFLOP/s")
    context.row(what, limit="launch by PyTorch", measured=f"{limits.launch_s * 1e6:.2f} us")
    return limits


@contextmanager
def failing_alone(context: Context, claim: str) -> Iterator[None]:
    """Make an error of the block a check that does not hold: the other ways are timed."""
    try:
        yield
    except AttendantError as error:
        context.check(claim, False, str(error))


def seconds_of(device: str, work: Way) -> float:
    """The time of work on the device, from its beginning to its end, after some warm-up."""
    taken_s: list[float] = []
    ends_s = time.perf_counter() + (WAKING_S if device == "cuda" else 0.0)
    while time.perf_counter() < ends_s or len(taken_s) < LIMIT_ROUNDS:
        synchronize(device)
        started_s = time.perf_counter()
        work()
        synchronize(device)
        taken_s.append(time.perf_counter() - started_s)
    return statistics.median(taken_s[-LIMIT_ROUNDS:])


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


def _product_rate(device: str, size: int, dtype: torch.dtype) -> float:
    """Of random numbers: zeros are multiplied faster, since fewer bits change."""
    generator = torch.Generator(device).manual_seed(1)
    one, other = (
        torch.randn(size, size, generator=generator, device=device).to(dtype) for _ in range(2)
    )
    result = torch.empty_like(one)
    return float(2 * size**3 / seconds_of(device, lambda: torch.mm(one, other, out=result)))
