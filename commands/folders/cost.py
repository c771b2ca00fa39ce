"""Estimates of the memory, disk and time of an import and an export, and what is free here.

By the number of weights. The figures are of two cores, measured on an encoder with 23 million
weights and on a Llama with 1.1 billion. For others they are extrapolated, so they give the order of
magnitude alone. docs/how-to/cuda.md says what was verified on CUDA.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from models.checkpoints.folder_plan import GGUF, ONNX, TRANSFORMERS, Plan
from service.contract.precision import HALF, INT8_PRODUCTS
from service.runtime.cpus import cpu_flags

# Bytes of a graph per weight; int8 keeps tables of words in float32.
GRAPH_BYTES = {
    "fp32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "int8": 1.3,
    "int8-weights": 1.3,
    "int4-weights": 0.8,
    "stored": 1.1,
}
LIBRARY_BYTES = 900_000_000  # torch and the exporter
EXPORT_BYTES_PER_WEIGHT = 20
PIECE_BYTES = 2_200_000_000  # of a float32 graph in pieces, of which one is on disk at a time
WRITERS = ("ForCausalLM", "LMHeadModel")  # ends of the names of such decoders' classes
SERVER_BYTES = 150_000_000
START_S = 20.0
SECONDS_PER_WEIGHT = {"fp32": 2.0e-7, "int8": 6.0e-7}
LEFT_SECONDS_PER_WEIGHT = {"fp32": 0.5e-7, "int8": 1.4e-7, "int4-weights": 4.0e-7}
LARGEST_IN_FLOAT = 500_000_000  # weights of a model that is served in fp32 on a CPU by default
CGROUP = Path("/sys/fs/cgroup")
# Of both versions of control groups: limit, use, and the line of memory.stat with file pages that
# the system takes back first.
CGROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)
MEMORY_INFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Cost:
    """Resources of a first start, and of the model from then on."""

    precision: str
    disk_bytes: int
    making_bytes: int  # of disk beside that, until it is made
    export_memory_bytes: int  # without pages of mapped files, which the system can take back
    serve_memory_bytes: int
    seconds: float


def default_precision(num_weights: int, *, has_cuda: bool, is_kept: bool = False) -> str:
    """The precision of a folder's graph where none is named.

    With `is_kept`, a CPU with products of int8 computes with the folder's rounded weights as they
    are.
    """
    if has_cuda:
        return "fp16"
    if is_kept and not cpu_flags().isdisjoint(INT8_PRODUCTS):
        return "stored"
    return "fp32" if num_weights <= LARGEST_IN_FLOAT else "int8"


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """The precision and device of an export."""

    precision: str  # as the server's setting has it
    device: str = "cpu"  # or cuda

    def cost(self, plan: Plan, num_weights: int = 0) -> Cost:
        """The estimate for a plan, whose number of weights may be known better."""
        if plan.form == ONNX.name:
            return cost_of_graph(plan.num_bytes, plan.precision)
        number, precision = num_weights or plan.num_weights, self.precision
        if precision == "auto":
            has_cuda, is_kept = self.device == "cuda", bool(plan.kept)
            precision = default_precision(number, has_cuda=has_cuda, is_kept=is_kept)
        is_decoder = plan.architecture.endswith(WRITERS) and plan.form in (
            TRANSFORMERS.name,
            GGUF.name,
        )
        return cost_of(number, precision, is_left=is_decoder and precision not in HALF)


def cost_of(num_weights: int, precision: str, *, is_left: bool = False) -> Cost:
    """The estimate for a model with this number of weights.

    With `is_left` they stay in their files, and are read one at a time: the most memory is taken
    when the finished graph is compared, and it is written once.
    """
    disk = int(GRAPH_BYTES.get(precision, 4.0) * num_weights) + 5_000_000
    making = min(4 * num_weights, PIECE_BYTES) if is_left else disk
    memory = disk if is_left else EXPORT_BYTES_PER_WEIGHT * num_weights
    each_s = LEFT_SECONDS_PER_WEIGHT if is_left else SECONDS_PER_WEIGHT
    return Cost(
        precision,
        disk,
        making,
        LIBRARY_BYTES + memory,
        SERVER_BYTES + int(1.2 * disk),
        START_S + num_weights * each_s.get(precision, each_s["int8"]),
    )


def remark_of(plan: Plan, cost: Cost, device: str) -> str:
    """A sentence against the precision on a device, and the flag that changes it; or nothing."""
    if cost.precision != "fp16" or device != "cpu" or plan.form == ONNX.name:
        return ""
    return (
        "fp16 is slower than fp32 on a CPU, which computes in float32 and converts before and "
        "after: take --precision fp32, or int8 for less memory"
    )


def cost_of_graph(num_bytes: int, precision: str) -> Cost:
    """The estimate for a graph that is served as it is, and compared with its edited form."""
    return Cost(
        precision,
        num_bytes + 5_000_000,
        num_bytes + 5_000_000,
        SERVER_BYTES + 4 * num_bytes,
        SERVER_BYTES + 2 * num_bytes,
        5.0 + num_bytes * 2.0e-8,
    )


def free_disk(folder: Path) -> int:
    """Bytes that are free where the folder is, or will be."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir())
    return shutil.disk_usage(there).free


def free_memory() -> int:
    """Bytes that processes can still have here: of the machine, or of the container."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    for line in MEMORY_INFO.read_text().splitlines() if MEMORY_INFO.is_file() else ():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            free = int(rest.split()[0]) * 1024
    return min([free, *_free_in_cgroup(CGROUP)])


def _free_in_cgroup(root: Path) -> Iterator[int]:
    """Bytes up to the container's limit, where it has one."""
    for limit, used, statistics, taken_back in CGROUP_FILES:
        text = (root / limit).read_text().strip() if (root / limit).is_file() else "max"
        if text.isdecimal() and (root / used).is_file():
            lines = (root / statistics).read_text().splitlines()
            numbers = dict(line.rsplit(" ", 1) for line in lines)
            in_use = int((root / used).read_text()) - int(numbers.get(taken_back, 0))
            yield max(0, int(text) - in_use)
