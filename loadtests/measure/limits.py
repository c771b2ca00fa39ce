"""The share of what the machine allows that a decoding step reaches.

    python -m loadtests.measure limits --graph a/1/model.onnx --rows 1 --rows 8 --rows 32

A step cannot be faster than its weights and caches are read from memory, nor than its products are
computed. The first is bytes over the bandwidth of a sum over more memory than any cache holds, the
second is products over the rate of one large product in ONNX Runtime: of float32, or of 8-bit
integers where weights are rounded, also where they have four bits. Both rates and the steps are
measured in turns in one run; the share is the larger of the two times over the step's, by rounds.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from loadtests.load.turns import spread
from loadtests.measure.records import (
    CASE,
    TIMES,
    Figure,
    Measure,
    Options,
    Rounds,
    Turn,
    Way,
    counted,
    option,
)
from loadtests.measure.steps import (
    DEFAULT_GRAPH,
    name_of,
    open_decoder,
    share_memory,
    step_of,
    timed,
)
from service.generation.decoders.decoder import OnnxDecoder
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

CONTEXT = 64  # tokens in the cache behind which a step is timed
ROOM = 256  # tokens of a slot
READ_BYTES = 2**30
PRODUCT_ROWS, PRODUCT_SIZE = 512, 4_096
MICROSOFT = "com.microsoft"
BYTES, PRODUCT = "bytes", "products"  # what the machine reads, and multiplies
PRODUCTS = ("MatMul", "Gemm", "MatMulIntegerToFloat", "MatMulNBits")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step has to read and to multiply."""

    weight_bytes: int
    cache_bytes: int  # per row and token behind it
    products: int  # multiplications with weights, per row
    is_integer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions(Options):
    """Graphs, and the steps that are timed."""

    graphs: list[Path] = option([DEFAULT_GRAPH], "ONNX file of a decoder.", flag="--graph")
    rows: list[int] = option([1, 8, 32], "Rows per step.", min=1)
    context: int = option(CONTEXT, "Tokens in the cache.", min=1)
    rounds: int = option(9, "Rounds that count.", min=1)
    threads: int = option(available_cpus(), "Of reading and multiplying.", min=1)


def ways(options: LimitOptions, _: ExitStack) -> dict[str, Way]:
    """Reading, multiplying, and steps of each graph at each number of rows."""
    named = {name_of(path): path for path in options.graphs}
    return ways_of(named, options.rows, options.context, options.threads)


def ways_of(
    graphs: Mapping[str, Path], rows: Sequence[int], context: int, threads: int
) -> dict[str, Way]:
    """The same of graphs that have names."""
    costs = {name: cost_of(path) for name, path in graphs.items()}
    room = max(ROOM, context + 1)
    decoders = {name: open_decoder(path, max(rows), room) for name, path in graphs.items()}
    share_memory(list(decoders.values()))
    found: dict[str, Way] = {BYTES: reading(threads)}
    for is_integer in sorted({cost.is_integer for cost in costs.values()}):
        found[_rate(is_integer)] = multiplying(threads, is_integer=is_integer)
    for name, cost in costs.items():
        for count in rows:
            found[f"{name}{CASE}{counted(count, 'row')}"] = partial(
                _step, cost, decoders[name], count, context
            )
    return found


def _rate(is_integer: bool) -> str:
    return "integer products" if is_integer else "float products"


def _step(cost: Cost, decoder: OnnxDecoder, rows: int, context: int) -> Turn:
    """One step, and what it had to read and to multiply."""
    return {
        **timed(step_of(rows, context), decoder, rows),
        "bytes": cost.weight_bytes + rows * context * cost.cache_bytes,
        _rate(cost.is_integer): rows * cost.products,
    }


def figures(rounds: Rounds) -> list[Figure]:
    """The larger of a step's two times at the machine's rates, over the step's, within a round."""
    found = []
    for way, turns in rounds.items():
        if CASE not in way:
            gigas = [turn["amount"] / turn["seconds"] / 1e9 for turn in turns]
            found.append(Figure.of(way, "rate", spread(gigas), "G/s"))
            continue
        least_s = [_least_s(turn, rounds, place) for place, turn in enumerate(turns)]
        values = {
            "a step": [turn["seconds"] * 1e3 for turn in turns],
            "reading": [each[BYTES] * 1e3 for each in least_s],
            "multiplying": [each[PRODUCT] * 1e3 for each in least_s],
        }
        found += [Figure.of(way, name, spread(each), "ms") for name, each in values.items()]
        shares = [
            max(each.values()) / turn["seconds"] for each, turn in zip(least_s, turns, strict=True)
        ]
        found.append(Figure.of(way, "share of the limit", spread(shares), TIMES))
    return found


def _least_s(turn: Turn, rounds: Rounds, place: int) -> dict[str, float]:
    """The seconds that reading and multiplying take alone, at the rates of this round."""
    name = next(each for each in map(_rate, (False, True)) if each in turn)
    machine = {BYTES: rounds[BYTES][place], PRODUCT: rounds[name][place]}
    amounts = {BYTES: turn["bytes"], PRODUCT: turn[name]}
    return {each: amounts[each] * own["seconds"] / own["amount"] for each, own in machine.items()}


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


def reading(threads: int) -> Way:
    """Bytes that are read when each thread sums up memory of its own."""
    parts = [np.ones(READ_BYTES // threads // 4, np.float32) for _ in range(threads)]
    pool = ThreadPoolExecutor(threads)

    def read() -> Turn:
        started_s = time.perf_counter()
        wait([pool.submit(np.dot, part, part) for part in parts])
        return {"seconds": time.perf_counter() - started_s, "amount": READ_BYTES}

    return read


def multiplying(threads: int, *, is_integer: bool) -> Way:
    """Multiplications of one large product in ONNX Runtime."""
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

    def multiply() -> Turn:
        started_s = time.perf_counter()
        session.run({"x": given}, ["y"])
        seconds = time.perf_counter() - started_s
        return {"seconds": seconds, "amount": PRODUCT_ROWS * weights.size}

    return multiply


LIMITS = Measure(
    "limits",
    "The share of what the machine's memory and multipliers allow that a decoding step reaches",
    "Decoders beside other engines",
    LimitOptions,
    ways,
    figures,
)
