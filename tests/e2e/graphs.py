"""Small ONNX graphs made by hand: quick, slow on request, and failing on request."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from service.contract.manifest import Manifest
from service.runtime.cpus import available_cpus
from tests.fakes.tiny import MAX_TOKENS, tiny_tokenizer

OPSET = 21
TABLE_SIZE = 10
MATRIX_SIZE = 256  # an iteration is a product of two: 2 * 256^3 = 34 million operations
MEASURED_ITERATIONS = 200
SLOW_LABELS = ("odd", "even")


def write_graph(model: onnx.ModelProto, repository: Path, name: str) -> None:
    """A model folder as bare as can be: `1/model.onnx` and nothing else."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")


def run_one_at_a_time(repository: Path, name: str) -> None:
    """So that a slow run holds its model."""
    config = "instance_group [{ count: 1 }]"
    (repository / name / "config.pbtxt").write_text(config, encoding="utf-8")


def add_sub() -> onnx.ModelProto:
    """INT32 [-1, 16] twice; the sum and the difference."""
    shape = ("rows", 16)
    inputs = [tensor(name, TensorProto.INT32, shape) for name in ("INPUT0", "INPUT1")]
    outputs = [tensor(name, TensorProto.INT32, shape) for name in ("OUTPUT0", "OUTPUT1")]
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    return model_of(nodes, inputs, outputs)


def lookup() -> onnx.ModelProto:
    """The square of an index below 10; a larger one makes the session raise."""
    squares = np.arange(TABLE_SIZE, dtype=np.float32) ** 2
    return model_of(
        [helper.make_node("Gather", ["squares", "index"], ["square"])],
        [tensor("index", TensorProto.INT64, ["rows", 1])],
        [tensor("square", TensorProto.FLOAT, ["rows", 1])],
        [numpy_helper.from_array(squares, "squares")],
    )


def slow() -> onnx.ModelProto:
    """Gives back `tag` after as many `iterations` as asked for; one request at a time."""
    nodes = [
        helper.make_node("Squeeze", ["iterations"], ["count"]),
        *_work(),
        helper.make_node("Cast", ["nothing"], ["zero"], to=TensorProto.INT64),
        helper.make_node("Add", ["tag", "zero"], ["answer"]),
    ]
    inputs = [tensor(name, TensorProto.INT64, [1]) for name in ("iterations", "tag")]
    outputs = [tensor("answer", TensorProto.INT64, [1])]
    return model_of(nodes, inputs, outputs, [_matrix()])


def slow_identity(iterations: int) -> onnx.ModelProto:
    """INT32 [-1, -1] comes back after so much work, which hangs on it and so is not foreseen."""
    nodes = [
        helper.make_node("Size", ["INPUT0"], ["size"]),
        helper.make_node("Mul", ["size", "zero"], ["none"]),
        helper.make_node("Add", ["none", "iterations"], ["count"]),
        *_work(),
        helper.make_node("Cast", ["nothing"], ["nothing_whole"], to=TensorProto.INT32),
        helper.make_node("Add", ["INPUT0", "nothing_whole"], ["OUTPUT0"]),
    ]
    shape = ("rows", "columns")
    constants = [
        numpy_helper.from_array(np.array(0, np.int64), "zero"),
        numpy_helper.from_array(np.array(iterations, np.int64), "iterations"),
        _matrix(),
    ]
    inputs = [tensor("INPUT0", TensorProto.INT32, shape)]
    outputs = [tensor("OUTPUT0", TensorProto.INT32, shape)]
    return model_of(nodes, inputs, outputs, constants)


def iterations_per_s(cpus: int | None = None) -> int:
    """How fast `slow` is where nothing else runs: the best of five, by processor time.

    On `cpus` threads, by default on as many as a server would use.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(slow().SerializeToString(), options)
    inputs = {"iterations": np.array([MEASURED_ITERATIONS]), "tag": np.array([0])}
    took_s = []
    for _ in range(5):
        started_s = time.thread_time()
        session.run(None, inputs)
        took_s.append(time.thread_time() - started_s)
    return int(MEASURED_ITERATIONS / min(took_s)) * (cpus or available_cpus())


def write_slow_text(repository: Path, iterations_per_token: int) -> None:
    """A text classifier whose logits take that long."""
    shape = ["rows", "tokens"]
    nodes = [
        helper.make_node("ReduceSum", ["attention_mask"], ["num_tokens"], keepdims=0),
        helper.make_node("Mul", ["num_tokens", "per_token"], ["count"]),
        *_work(),
        helper.make_node("ReduceSum", ["attention_mask", "axis"], ["length"], keepdims=1),
        helper.make_node("Cast", ["length"], ["length_float"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["length_float", "nothing"], ["first"]),
        helper.make_node("Neg", ["first"], ["second"]),
        helper.make_node("Concat", ["first", "second"], ["logits"], axis=1),
        helper.make_node("Shape", ["input_ids"], ["ignored"]),  # so that the graph takes it
    ]
    inputs = [tensor(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")]
    constants = [
        numpy_helper.from_array(np.array(iterations_per_token, np.int64), "per_token"),
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
        _matrix(),
    ]
    outputs = [tensor("logits", TensorProto.FLOAT, ["rows", len(SLOW_LABELS)])]
    write_graph(model_of(nodes, inputs, outputs, constants), repository, "slow-text")
    folder = repository / "slow-text/1"
    manifest = Manifest("text-classification", "fp32", MAX_TOKENS, 0, SLOW_LABELS)
    (folder / "manifest.json").write_text(manifest.to_json(), encoding="utf-8")
    tiny_tokenizer().save(str(folder / "tokenizer.json"))


def _work() -> list[NodeProto]:
    """`count` products in a loop, and `nothing`, which is 0 and depends on them."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_on"], ["go_on_still"]),
            helper.make_node("MatMul", ["before", "matrix"], ["after"]),
        ],
        "body",
        [
            tensor("step", TensorProto.INT64, []),
            tensor("go_on", TensorProto.BOOL, []),
            tensor("before", TensorProto.FLOAT, [MATRIX_SIZE, MATRIX_SIZE]),
        ],
        [
            tensor("go_on_still", TensorProto.BOOL, []),
            tensor("after", TensorProto.FLOAT, [MATRIX_SIZE, MATRIX_SIZE]),
        ],
    )
    zero = numpy_helper.from_array(np.array(0, np.float32))
    return [
        helper.make_node("Loop", ["count", "", "matrix"], ["product"], body=body),
        helper.make_node("ReduceSum", ["product"], ["total"], keepdims=0),
        helper.make_node("Constant", [], ["zero_float"], value=zero),
        helper.make_node("Mul", ["total", "zero_float"], ["nothing"]),
    ]


def _matrix() -> TensorProto:
    """A rotation: its powers neither grow nor vanish, which would change their cost."""
    random = np.random.default_rng(0).normal(size=(MATRIX_SIZE, MATRIX_SIZE))
    return numpy_helper.from_array(np.linalg.qr(random)[0].astype(np.float32), "matrix")


def tensor(name: str, kind: int, shape: Sequence[str | int]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    constants: list[TensorProto] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model
