"""Foreign graphs: callers share runs only where rows keep to themselves, however axes are named."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from service.contract.tensors import Arrays, Signature
from service.errors import ModelFailed
from service.repository.row_check import check_rows
from service.runtime.session import OnnxSession, RunStop, SessionOptions
from service.serving.model import Caller, InferRequest
from tests.fakes.sessions import PATIENCE_S, spec, write_model
from tests.service.repository.test_repository import loaded

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
WIDTH = 4
NAMES = {  # of the first axes of input and output
    "one name": ("batch", "batch"),
    "two names": ("batch", "num_rows"),
    "no names": (None, None),
}


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph from `x` to `y`; `constants` are by name."""

    nodes: Sequence[NodeProto]
    constants: dict[str, np.ndarray]
    output: tuple[int, Sequence[int | str]] = (FLOAT, (WIDTH,))  # type, and dims without the first
    input_type: int = FLOAT
    tail: Sequence[int | str] = (WIDTH,)  # the input's dims without the first

    def write(self, path: Path, names: tuple[str | None, str | None]) -> None:
        first_in, first_out = names
        output_type, dims = self.output
        graph = helper.make_graph(
            list(self.nodes),
            "g",
            [helper.make_tensor_value_info("x", self.input_type, [first_in, *self.tail])],
            [helper.make_tensor_value_info("y", output_type, [first_out, *dims])],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, str(path))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


WEIGHT = np.random.default_rng(5).standard_normal((WIDTH, WIDTH)).astype(np.float32)
TABLE = np.random.default_rng(6).standard_normal((20, 3)).astype(np.float32)

# Rows keep to themselves.
APART = {
    "product": Graph([node("MatMul", "x w", "y")], {"w": WEIGHT}),
    "softmax of a row": Graph([node("Softmax", "x", "y", axis=1)], {}),
    "sorted row": Graph([node("TopK", "x k", "y i", axis=1)], {"k": ints(WIDTH)}),
    "logarithms": Graph([node("Log", "x", "y")], {}),
    "a row's mean taken off": Graph(
        [node("ReduceMean", "x", "m", axes=[1]), node("Sub", "x m", "y")], {}
    ),
    "flattened and back": Graph(
        [node("Reshape", "x flat", "f"), node("Tanh", "f", "t"), node("Reshape", "t rows", "y")],
        {"flat": ints(-1), "rows": ints(-1, WIDTH)},
    ),
    "class of a row": Graph([node("ArgMax", "x", "y", axis=1, keepdims=0)], {}, (INT64, ())),
    "ids of a small vocabulary": Graph(
        [node("Gather", "e x", "g"), node("ReduceMean", "g", "y", axes=[1], keepdims=0)],
        {"e": TABLE},
        (FLOAT, (3,)),
        INT64,
        ("sequence",),
    ),
}
# Rows of the output are those of the input, and depend on the others.
MIXED = {
    "softmax over rows": Graph([node("Softmax", "x", "y", axis=0)], {}),
    "sums of the rows before": Graph([node("CumSum", "x a", "y")], {"a": np.array(0)}),
    "mean of the rows taken off": Graph(
        [node("ReduceMean", "x", "m", axes=[0]), node("Sub", "x m", "y")], {}
    ),
    "largest of the rows": Graph(
        [node("ReduceMax", "x", "m", axes=[0]), node("Div", "x m", "y")], {}
    ),
    "the first row taken off": Graph(
        [node("Slice", "x b e a", "f"), node("Sub", "x f", "y")],
        {"b": ints(0), "e": ints(1), "a": ints(0)},
    ),
    "norm of a batch": Graph(
        [
            node("ReduceMean", "x", "m", axes=[0]),
            node("Sub", "x m", "c"),
            node("Mul", "c c", "q"),
            node("ReduceMean", "q", "v", axes=[0]),
            node("Add", "v tiny", "w"),
            node("Sqrt", "w", "s"),
            node("Div", "c s", "y"),
        ],
        {"tiny": np.array(1e-5, np.float32)},
    ),
    "turned over": Graph(
        [node("Slice", "x b e a s", "y")],
        {"b": ints(-1), "e": ints(-(2**40)), "a": ints(0), "s": ints(-1)},
    ),
    "sorted rows": Graph(
        [
            node("Shape", "x", "d"),
            node("Slice", "d z o z", "n"),
            node("TopK", "x n", "y i", axis=0),
        ],
        {"z": ints(0), "o": ints(1)},
    ),
    "similarities": Graph(
        [node("Transpose", "x", "t"), node("MatMul", "x t", "y")], {}, (FLOAT, ("columns",))
    ),
    "places in the batch": Graph(
        [
            node("ArgMax", "x", "p", axis=0, keepdims=1),
            node("Cast", "p", "f", to=FLOAT),
            node("Add", "x f", "y"),
        ],
        {},
    ),
}
# The output has other rows than the input.
OTHER_ROWS = {
    "rows above a threshold": Graph(
        [
            node("ReduceMax", "x", "m", axes=[1], keepdims=0),
            node("Greater", "m t", "c"),
            node("Compress", "x c", "y", axis=0),
        ],
        {"t": np.array(0.5, np.float32)},
    ),
    "rows that are not blank": Graph(
        [
            node("Abs", "x", "a"),
            node("ReduceMax", "a", "m", axes=[1], keepdims=0),
            node("Greater", "m t", "c"),
            node("Compress", "x c", "y", axis=0),
        ],
        {"t": np.array(1e-6, np.float32)},
    ),
    "places that are not 0": Graph(
        [node("NonZero", "x", "n"), node("Transpose", "n", "y")], {}, (INT64, (2,))
    ),
    "best row": Graph([node("TopK", "x k", "y i", axis=0)], {"k": ints(1)}),
    "flattened": Graph([node("Reshape", "x s", "y")], {"s": ints(-1, 1)}, (FLOAT, (1,))),
    "all in one row": Graph([node("Reshape", "x s", "y")], {"s": ints(1, -1)}, (FLOAT, ("all",))),
    "rows twice": Graph([node("Concat", "x x", "y", axis=0)], {}),
    "distinct rows": Graph([node("Unique", "x", "y", axis=0)], {}),
    "boxes": Graph(
        [
            node("Unsqueeze", "x a", "b"),
            node("ReduceMax", "b", "m", axes=[2], keepdims=0),
            node("Unsqueeze", "m one", "s"),
            node("NonMaxSuppression", "b s most", "y"),
        ],
        {"a": ints(0), "one": ints(1), "most": ints(5)},
        (INT64, (3,)),
    ),
}
CASES = [
    (kind, title, names)
    for kind, family in (("apart", APART), ("mixed", MIXED), ("other rows", OTHER_ROWS))
    for title in family
    for names in NAMES
]


def rows_of(graph: Graph, num_rows: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if graph.input_type == INT64:
        return random.integers(20, size=(num_rows, 6))
    return random.uniform(0.1, 1.0, (num_rows, WIDTH)).astype(np.float32)


@pytest.mark.parametrize(("kind", "title", "names"), CASES)
async def test_every_caller_of_a_foreign_graph_gets_the_answer_of_its_rows_alone(
    kind: str, title: str, names: str, tmp_path: Path
) -> None:
    """16 callers at once, of 1 to 3 rows each; graphs are batched where rows keep to themselves."""
    graph = (APART | MIXED | OTHER_ROWS)[title]
    file = tmp_path / "m" / "1" / "model.onnx"
    graph.write(file, NAMES[names])
    alone = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    inputs = [rows_of(graph, 1 + seed % 3, seed) for seed in range(16)]
    expected = [alone.run(["y"], {"x": x})[0] for x in inputs]
    async with loaded(tmp_path, OnnxSession) as models:
        assert not models.failures
        model = models.find("m")
        assert (model.interface.max_batch_size > 0) == (kind == "apart"), models.failures
        num_rows = [len(x) if model.interface.has_rows else 1 for x in inputs]
        requests = [
            InferRequest({"x": x}, count, Caller(time.monotonic()))
            for x, count in zip(inputs, num_rows, strict=True)
        ]
        replies = await asyncio.gather(*map(model.infer, requests))
    for reply, answer in zip(replies, expected, strict=True):
        outputs = reply.outputs["y"].reshape(answer.shape)  # a row of no axes is shown with one
        np.testing.assert_allclose(outputs, answer, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("title", [*MIXED, *OTHER_ROWS])
async def test_batches_of_a_graph_whose_rows_do_not_keep_to_themselves_are_refused(
    title: str, tmp_path: Path
) -> None:
    write_model(tmp_path, "m", config="max_batch_size: 8")
    (MIXED | OTHER_ROWS)[title].write(tmp_path / "m/1/model.onnx", ("batch", "batch"))
    async with loaded(tmp_path, OnnxSession) as models:
        reason = models.failures["m"]
    assert reason.startswith("max_batch_size is 8, but ")
    if "not every tensor" not in reason:  # which the graph itself says
        assert "requests cannot share runs of this graph: " in reason
        assert "expected max_batch_size 0" in reason


async def test_the_log_says_why_a_graph_is_not_batched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    OTHER_ROWS["best row"].write(tmp_path / "best/1/model.onnx", ("batch", "num_dets"))
    MIXED["softmax over rows"].write(tmp_path / "soft/1/model.onnx", ("batch", "batch"))
    with caplog.at_level(logging.INFO):
        async with loaded(tmp_path, OnnxSession):
            pass
    lines = [record.getMessage() for record in caplog.records if "max_batch_size 0" in record.msg]
    assert lines[0].startswith("'best' version 1 gets max_batch_size 0, a run for each request: ")
    assert "changes by" in lines[1]
    assert lines[1].endswith("beside other rows")
    assert "'soft'" in lines[1]


def test_a_graph_that_no_trial_can_run_is_batched_where_its_first_axes_have_one_name(
    tmp_path: Path,
) -> None:
    """`x` is reshaped to 17 columns by 13, which no made-up shape is."""
    odd = Graph(
        [node("Reshape", "x s", "r"), node("ReduceMean", "r", "y", axes=[2], keepdims=0)],
        {"s": ints(0, 17, 13)},
        (FLOAT, (17,)),
        FLOAT,
        ("pixels",),
    )
    checks = {}
    for title, names in NAMES.items():
        odd.write(tmp_path / "model.onnx", names)
        session = OnnxSession(tmp_path / "model.onnx", SessionOptions())
        checks[title] = check_rows(session, {}, 64).obstacle
        assert not check_rows(session, {"x": (221,)}, 64).obstacle, "the file states the dims"
    assert not checks["one name"]
    assert "that of 'x' is unnamed, that of 'y' is unnamed" in checks["no names"]
    assert "that of 'x' is 'batch', that of 'y' is 'num_rows'" in checks["two names"]
    for title in ("no names", "two names"):
        assert "trials cannot tell whether they are one: " in checks[title]


@pytest.mark.parametrize("names", NAMES)
def test_random_outputs_are_told_by_their_axes_and_the_others_by_their_rows(
    names: str, tmp_path: Path
) -> None:
    """No two runs agree, so that values tell nothing of an output with noise."""
    noise = [node("RandomNormalLike", "x", "r"), node("Add", "x r", "y")]
    mixed = [node("Softmax", "x", "s", axis=0), node("RandomNormalLike", "s", "r")]
    obstacles = []
    for nodes in (noise, [*mixed, node("Mul", "r zero", "n"), node("Add", "s n", "y")]):
        Graph(nodes, {"zero": np.array(0, np.float32)}).write(tmp_path / "m.onnx", NAMES[names])
        session = OnnxSession(tmp_path / "m.onnx", SessionOptions())
        obstacles.append(check_rows(session, {}, 64).obstacle)
    assert ("two runs of one row differ in 'y'" in obstacles[0]) == (names != "one name")
    assert "changes by" in obstacles[1]


def test_a_scale_for_the_whole_run_is_told_from_rows_that_mix(tmp_path: Path) -> None:
    """Dynamic quantization has one scale for all rows: its effect is stated, and is small."""
    wide = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    quantized = Graph(
        [
            node("DynamicQuantizeLinear", "x", "q s z"),
            node("DequantizeLinear", "q s z", "d"),
            node("MatMul", "d w", "y"),
        ],
        {"w": wide},
        (FLOAT, (64,)),
        FLOAT,
        (64,),
    )
    quantized.write(tmp_path / "model.onnx", ("batch", "batch"))
    check = check_rows(OnnxSession(tmp_path / "model.onnx", SessionOptions()), {}, 64)
    assert 0 < check.effect < 0.1
    assert "one scale for the whole run" in check.obstacle


async def test_a_stated_batch_size_stands_beside_a_shared_scale(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quantized = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("DequantizeLinear", "q s z", "y"),
    ]
    Graph(quantized, {}).write(tmp_path / "m/1/model.onnx", ("batch", "batch"))
    (tmp_path / "m/config.pbtxt").write_text("max_batch_size: 8")
    async with loaded(tmp_path, OnnxSession) as models:
        assert models.find("m").interface.max_batch_size == 8
    assert "shares runs, as config.pbtxt has max_batch_size 8, but a row of output" in caplog.text
    (tmp_path / "m/config.pbtxt").unlink()
    async with loaded(tmp_path, OnnxSession) as models:
        assert models.find("m").interface.max_batch_size == 0


async def test_a_version_that_shares_no_runs_is_served_beside_one_that_does(tmp_path: Path) -> None:
    write_model(tmp_path, "m", config="version_policy { all {} }")
    APART["product"].write(tmp_path / "m/1/model.onnx", ("batch", "batch"))
    MIXED["softmax over rows"].write(tmp_path / "m/2/model.onnx", ("batch", "batch"))
    async with loaded(tmp_path, OnnxSession) as models:
        sizes = [models.find("m", version).interface.max_batch_size for version in ("1", "2")]
    assert sizes == [64, 0]


@pytest.mark.parametrize("max_rows", [1, 8])
def test_rows_that_are_never_beside_others_need_only_be_rows(max_rows: int, tmp_path: Path) -> None:
    def session_of(graph: Graph) -> OnnxSession:
        graph.write(tmp_path / "model.onnx", ("batch", "batch"))
        return OnnxSession(tmp_path / "model.onnx", SessionOptions())

    mixed = check_rows(session_of(MIXED["softmax over rows"]), {}, max_rows)
    assert bool(mixed.obstacle) == (max_rows > 1)
    assert check_rows(session_of(OTHER_ROWS["flattened"]), {}, max_rows).obstacle


class EndlessSession:
    """A graph whose runs end only when they are stopped."""

    def __init__(self, *axes: str) -> None:
        inputs, outputs = (
            replace(spec(n, "FP32", -1, 2), first_axis=a) for n, a in zip("xy", axes, strict=True)
        )
        self.signature = Signature((inputs,), (outputs,))

    def run(
        self, inputs: Arrays, outputs: Sequence[str], stopping: RunStop | None = None
    ) -> list[np.ndarray]:
        assert stopping is not None, "trials have an end"
        is_stopped = threading.Event()
        stopping.then(is_stopped.set)
        assert is_stopped.wait(PATIENCE_S)
        raise ModelFailed("the run was stopped")


def test_a_graph_whose_trials_do_not_end_is_told_by_the_names_of_its_axes() -> None:
    late = check_rows(EndlessSession("batch", "rows"), {}, 8, max_s=0.05)
    assert (
        "trials cannot tell whether they are one: they lasted longer than 0.05 s" in late.obstacle
    )
    assert not check_rows(EndlessSession("batch", "batch"), {}, 8, max_s=0.05).obstacle
