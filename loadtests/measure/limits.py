"""The share of what the machine allows that a decoding step reaches.

    python -m loadtests.measure.limits a/1/model.onnx b/1/model.onnx --rows 1 --rows 8 --rows 32

A step cannot be faster than its weights and caches are read from memory, nor than its products are
computed. The first is bytes over the bandwidth of a sum over more memory than any cache holds, the
second is products over the rate of one large product in ONNX Runtime: of float32, or of 8-bit
integers where weights are rounded, also where they have four bits. Both rates and the steps are
measured in turns in one run; the share is the larger of the two times over the step's, by rounds.
"""

# ruff: noqa: B006 - Typer copies defaults

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import onnx
import typer
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from loadtests.load.turns import Spread, spread, take_turns
from loadtests.measure.steps import open_decoder, share_memory, step_of
from service.generation.decoders.decoder import OnnxDecoder
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

CONTEXT = 64  # tokens in the cache behind which a step is timed
ROOM = 256  # tokens of a slot
READ_BYTES = 2**30
PRODUCT_ROWS, PRODUCT_SIZE = 512, 4_096
MICROSOFT = "com.microsoft"
console = Console()
PRODUCTS = ("MatMul", "Gemm", "MatMulIntegerToFloat", "MatMulNBits")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step has to read and to multiply."""

    weight_bytes: int
    cache_bytes: int  # per row and token behind it
    products: int  # multiplications with weights, per row
    is_integer: bool


@dataclass(frozen=True, slots=True)
class Share:
    """One graph at one number of rows."""

    graph: str
    rows: int
    step_ms: Spread
    bytes_ms: float  # reading alone
    products_ms: float  # multiplying alone
    share: Spread
    gigabytes_per_s: float
    giga_products_per_s: float


def main(
    graphs: Annotated[list[Path], typer.Argument(help="ONNX files of decoders.")],
    rows: Annotated[list[int], typer.Option(min=1, help="Rows per step.")] = [1, 8, 32],
    context: Annotated[int, typer.Option(min=1, help="Tokens in the cache.")] = CONTEXT,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count, after one.")] = 9,
) -> None:
    """Time steps beside the memory and the multipliers of the machine."""
    named = {str(path): path for path in graphs}
    show(shares_of(named, rows, context, rounds, available_cpus()), console)


def shares_of(
    graphs: Mapping[str, Path], rows: Sequence[int], context: int, rounds: int, threads: int
) -> list[Share]:
    """The share that each graph reaches at each number of rows."""
    costs = {name: cost_of(path) for name, path in graphs.items()}
    room = max(ROOM, context + 1)
    decoders = {name: open_decoder(path, max(rows), room) for name, path in graphs.items()}
    share_memory(list(decoders.values()))
    ways: dict[str, Callable[[], float]] = {"bytes": reading(threads)}
    for is_integer in {cost.is_integer for cost in costs.values()}:
        ways[_rate(is_integer)] = multiplying(threads, is_integer=is_integer)
    for name, decoder in decoders.items():
        for count in rows:
            ways[f"{name} {count}"] = partial(_step_s, decoder, count, context)
    measured = take_turns(ways, rounds)
    return [
        share_of(name, count, context, cost, measured)
        for name, cost in costs.items()
        for count in rows
    ]


def _rate(is_integer: bool) -> str:
    return "integer products" if is_integer else "float products"


def share_of(
    name: str, rows: int, context: int, cost: Cost, measured: Mapping[str, list[float]]
) -> Share:
    num_bytes = cost.weight_bytes + rows * context * cost.cache_bytes
    steps_s = np.array(measured[f"{name} {rows}"])
    bytes_s = num_bytes / np.array(measured["bytes"])  # the ways give rates: bytes per second
    products_s = rows * cost.products / np.array(measured[_rate(cost.is_integer)])
    shares = np.maximum(bytes_s, products_s) / steps_s
    return Share(
        name,
        rows,
        spread((steps_s * 1e3).tolist()),
        float(np.median(bytes_s)) * 1e3,
        float(np.median(products_s)) * 1e3,
        spread(shares.tolist()),
        float(np.median(measured["bytes"])) / 1e9,
        float(np.median(measured[_rate(cost.is_integer)])) / 1e9,
    )


def show(shares: Sequence[Share], console: Console) -> None:
    """A row for each graph and number of rows."""
    headings = ("graph", "rows", "step, ms", "reading, ms", "multiplying, ms", "share of the limit")
    table = Table(*headings, "GB/s", "G products/s")
    for each in shares:
        table.add_row(
            each.graph,
            str(each.rows),
            str(each.step_ms),
            f"{each.bytes_ms:.2f}",
            f"{each.products_ms:.2f}",
            str(each.share),
            f"{each.gigabytes_per_s:.0f}",
            f"{each.giga_products_per_s:.0f}",
        )
    console.print(table)


def cost_of(path: Path) -> Cost:
    """What a step of a decoder's graph reads and multiplies, from its weights and caches."""
    model = onnx.load(str(path))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:  # done once, when the graph is loaded: tied word vectors
        if node.op_type == "Transpose" and node.input[0] in weights:
            weights[node.output[0]] = weights[node.input[0]]
    num_bytes, products, read = 0, 0, set()
    is_integer = False
    for node in model.graph.node:
        if node.op_type not in PRODUCTS:
            continue
        own = [weights[name] for name in node.input if name in weights]
        if not own:
            continue
        is_integer |= node.op_type in ("MatMulIntegerToFloat", "MatMulNBits")
        sizes = {each.name: each.i for each in node.attribute if each.name in ("K", "N")}
        matrix = max(own, key=_num_bytes)
        products += sizes["K"] * sizes["N"] if sizes else int(np.prod(matrix.dims))
        num_bytes += sum(_num_bytes(each) for each in own if each.name not in read)
        read |= {each.name for each in own}
    caches = [each.type.tensor_type for each in model.graph.input if "past" in each.name]
    cache_bytes = sum(
        each.shape.dim[1].dim_value * each.shape.dim[3].dim_value * _item_bytes(each.elem_type)
        for each in caches
    )
    return Cost(num_bytes, cache_bytes, products, is_integer)


def _num_bytes(tensor: TensorProto) -> int:
    return int(np.prod(tensor.dims)) * _item_bytes(tensor.data_type)


def _item_bytes(element_type: int) -> int:
    return int(helper.tensor_dtype_to_np_dtype(element_type).itemsize)


def _step_s(decoder: OnnxDecoder, rows: int, context: int) -> float:
    started_s = time.perf_counter()
    step_of(rows, context)(decoder)
    return time.perf_counter() - started_s


def reading(threads: int) -> Callable[[], float]:
    """Bytes per second that are read when each thread sums up memory of its own."""
    parts = [np.ones(READ_BYTES // threads // 4, np.float32) for _ in range(threads)]
    pool = ThreadPoolExecutor(threads)

    def rate() -> float:
        started_s = time.perf_counter()
        wait([pool.submit(np.dot, part, part) for part in parts])
        return READ_BYTES / (time.perf_counter() - started_s)

    return rate


def multiplying(threads: int, *, is_integer: bool) -> Callable[[], float]:
    """Multiplications per second of one large product in ONNX Runtime."""
    generator = np.random.default_rng(0)
    size = (PRODUCT_SIZE, PRODUCT_SIZE)
    weights: np.ndarray
    given: np.ndarray
    if is_integer:
        weights = generator.integers(-127, 128, size).astype(np.int8)
        given = generator.integers(0, 256, (PRODUCT_ROWS, PRODUCT_SIZE)).astype(np.uint8)
        constants = {"scale": np.float32(1), "zero": np.uint8(128)}
        inputs = ["x", "w", "scale", "scale", "zero"]
        node = helper.make_node("MatMulIntegerToFloat", inputs, ["y"], domain=MICROSOFT)
    else:
        weights = generator.standard_normal(size, np.float32)
        given = generator.standard_normal((PRODUCT_ROWS, PRODUCT_SIZE), np.float32)
        constants = {}
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
    kind = helper.np_dtype_to_tensor_dtype(given.dtype)
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", kind, list(given.shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(given.shape))],
        [
            numpy_helper.from_array(np.asarray(value), name)
            for name, value in {"w": weights, **constants}.items()
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    with TemporaryDirectory() as folder:
        path = Path(folder, "product.onnx")
        onnx.save(model, str(path))
        session = OnnxSession(path, SessionOptions(num_threads=threads))

    def rate() -> float:
        started_s = time.perf_counter()
        session.run({"x": given}, ["y"])
        return PRODUCT_ROWS * weights.size / (time.perf_counter() - started_s)

    return rate


if __name__ == "__main__":
    typer.run(main)
