"""Estimates of the memory, disk and time of an import and an export, and what is free here.

By the number of weights. The figures are of two cores, measured on an encoder with 23 million
weights and on a Llama with 1.1 billion. For others they are extrapolated, so they give the order of
magnitude alone. docs/how-to/cuda.md says what was verified on CUDA.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from models.checkpoints.folder_plan import GGUF, ONNX, TRACED, TRANSFORMERS, Plan
from service.contract.precision import HALF, INT8_PRODUCTS
from service.runtime.cpus import cpu_flags

# Bytes of a graph per weight of a product, with the scales, and per weight of a table of words.
GRAPH_BYTES = {
    "fp32": (4.0, 4.0),
    "fp16": (2.0, 2.0),
    "bf16": (2.0, 2.0),
    "int8": (1.03, 4.0),
    "int8-weights": (1.14, 4.0),
    "int4-weights": (0.64, 4.0),
    "stored": (1.14, 4.0),
}
IN_BLOCKS = ("int8-weights", "int4-weights")  # whose output layer is beside a table that it is
FLOAT_BYTES = 4
MARGIN_BYTES = 5_000_000  # tokenizer, manifest and nodes
HALF_BYTES = 8  # of an export in half precision for each weight: the graph, and it in float32
WIDENED = 2  # times more than on disk, of half precision that a CPU computes in float32
MOMENT_BYTES = 1_100_000_000  # of the inputs of a piece's products, which 4 bits are chosen by
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
        is_writer = plan.architecture.endswith(WRITERS)
        is_left = is_writer and plan.form in (TRANSFORMERS.name, GGUF.name, TRACED.name)
        disk = graph_bytes(
            number, precision, plan.num_in_tables, is_tied=is_writer and plan.is_tied
        )
        cost = cost_of(number, precision, disk, is_left=is_left)
        if is_left and plan.form == TRACED.name:  # compared with the whole network in float32
            memory = cost.export_memory_bytes + FLOAT_BYTES * number
            cost = replace(cost, export_memory_bytes=memory)
        return cost


def graph_bytes(
    num_weights: int, precision: str, num_in_tables: int = 0, *, is_tied: bool = False
) -> int:
    """The size of a graph, of which some weights are in tables of words.

    With `is_tied` the table is the output layer too, which int8 holds once.
    """
    of_product, of_table = GRAPH_BYTES.get(precision, GRAPH_BYTES["fp32"])
    if is_tied and precision == "int8":
        of_table = of_product
    if is_tied and precision in IN_BLOCKS:
        of_table += of_product
    in_products = num_weights - num_in_tables
    return int(of_product * in_products + of_table * num_in_tables) + MARGIN_BYTES


def cost_of(num_weights: int, precision: str, disk: int = 0, *, is_left: bool = False) -> Cost:
    """The estimate for a model with this number of weights, whose graph takes `disk` bytes.

    With `is_left` they stay in their files, and are read one at a time: the most memory is taken
    when the finished graph is compared, or 4 bits are chosen, and it is written once.
    """
    disk = disk or graph_bytes(num_weights, precision)
    making = min(4 * num_weights, PIECE_BYTES) if is_left else disk
    memory = EXPORT_BYTES_PER_WEIGHT * num_weights
    if is_left:
        memory = HALF_BYTES * num_weights if precision in HALF else disk
    if is_left and precision == "int4-weights":
        memory = max(disk, making + min(4 * num_weights, MOMENT_BYTES))
    served = (1 + WIDENED if precision in HALF else 1.2) * disk
    each_s = LEFT_SECONDS_PER_WEIGHT if is_left else SECONDS_PER_WEIGHT
    return Cost(
        precision,
        disk,
        making,
        LIBRARY_BYTES + memory,
        SERVER_BYTES + int(served),
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
