"""ONNX models with the names, tensors and behaviour that public clients of the protocol expect.

`write_examples` makes a repository for the public example clients, `write_repository` the one
that the tests of this folder ask. Everything is made with `onnx.helper`; nothing is trained.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from tests.e2e.graphs import (
    iterations_per_s,
    lookup,
    model_of,
    slow,
    slow_identity,
    tensor,
    write_graph,
)

ROWS = 8  # max_batch_size, as the public examples have it
CLASSES = 1_000
KINDS = {
    "BOOL": TensorProto.BOOL,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "FP16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}
NUM_EXAMPLE_MODELS = 8  # the public clients count them


def write_examples(folder: Path, delay_s: float) -> None:
    """Eight models; `custom_identity_int32` computes for about `delay_s`."""
    write_add_sub(folder, "simple", "INT32")
    write_add_sub(folder, "simple_int8", "INT8")
    write_string_add_sub(folder, "simple_string")
    write_identity(folder, "simple_identity", "BYTES")
    write_identity(folder, "identity_fp32", "FP32")
    write_identity(folder, "identity_bytes", "BYTES")
    write_classifier(folder, "densenet_onnx")
    write_slow_identity(folder, "custom_identity_int32", delay_s)


def write_repository(folder: Path, long_s: float) -> None:
    """What the tests ask: the examples' models, an identity per datatype, and bad behaviour."""
    write_examples(folder, long_s)
    for datatype in KINDS.keys() - {"FP32", "BYTES"}:
        write_identity(folder, f"identity_{datatype.lower()}", datatype)
    write_identity(folder, "unbatched", "FP32", max_batch_size=0)
    write_versions(folder, "versions", (1, 2, 5), served=(1, 2))
    write_short_queue(folder, "short_queue")
    write_add_sub(folder, "cached", "INT32", "response_cache { enable: true }")
    write_graph(lookup(), folder, "lookup")  # raises for an index that it lacks


def write_add_sub(folder: Path, name: str, datatype: str, more: str = "") -> None:
    """INPUT0 and INPUT1 [16]; OUTPUT0 is their sum, OUTPUT1 their difference."""
    nodes = [
        helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
        helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
    ]
    config = _config(ROWS, datatype, 16, 2) + more
    _write(folder, name, model_of(nodes, *_pairs(KINDS[datatype])), config)


def write_string_add_sub(folder: Path, name: str) -> None:
    """The same for whole numbers written in decimal."""
    nodes = [
        *(_cast(f"INPUT{i}", f"number{i}", TensorProto.INT32) for i in range(2)),
        helper.make_node("Add", ["number0", "number1"], ["sum"]),
        helper.make_node("Sub", ["number0", "number1"], ["difference"]),
        _cast("sum", "OUTPUT0", TensorProto.STRING),
        _cast("difference", "OUTPUT1", TensorProto.STRING),
    ]
    model = model_of(nodes, *_pairs(TensorProto.STRING))
    _write(folder, name, model, _config(ROWS, "BYTES", 16, 2))


def write_identity(folder: Path, name: str, datatype: str, max_batch_size: int = ROWS) -> None:
    """INPUT0 [-1] comes back as OUTPUT0."""
    kind = KINDS[datatype]
    shape = ("rows", "columns") if max_batch_size else ("columns",)
    model = model_of(
        [helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])],
        [tensor("INPUT0", kind, shape)],
        [tensor("OUTPUT0", kind, shape)],
    )
    _write(folder, name, model, _config(max_batch_size, datatype, -1, 1))


def write_versions(folder: Path, name: str, versions: Iterable[int], served: Iterable[int]) -> None:
    """Version v adds v to INPUT0 [1]."""
    for version in versions:
        constant = numpy_helper.from_array(np.array([version], np.int32), "version")
        model = model_of(
            [helper.make_node("Add", ["INPUT0", "version"], ["OUTPUT0"])],
            [tensor("INPUT0", TensorProto.INT32, ("rows", 1))],
            [tensor("OUTPUT0", TensorProto.INT32, ("rows", 1))],
            [constant],
        )
        (folder / name / str(version)).mkdir(parents=True)
        onnx.save(model, folder / name / str(version) / "model.onnx")
    policy = f"version_policy {{ specific {{ versions: {list(served)} }} }}"
    (folder / name / "config.pbtxt").write_text(policy, encoding="utf-8")


def write_classifier(folder: Path, name: str) -> None:
    """A stand-in for DenseNet: its tensors and labels, and logits from the mean colour alone."""
    weights = np.random.default_rng(0).normal(size=(CLASSES, 3, 1, 1)).astype(np.float32)
    model = model_of(
        [
            helper.make_node("GlobalAveragePool", ["data_0"], ["colour"]),
            helper.make_node("Conv", ["colour", "weights"], ["fc6_1"]),
        ],
        [tensor("data_0", TensorProto.FLOAT, (1, 3, 224, 224))],
        [tensor("fc6_1", TensorProto.FLOAT, (1, CLASSES, 1, 1))],
        [numpy_helper.from_array(weights, "weights")],
    )
    config = f"""
        platform: "onnxruntime_onnx"
        max_batch_size: 0
        input [{{
          name: "data_0" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [3, 224, 224]
          reshape {{ shape: [1, 3, 224, 224] }}
        }}]
        output [{{
          name: "fc6_1" data_type: TYPE_FP32 dims: [{CLASSES}]
          reshape {{ shape: [1, {CLASSES}, 1, 1] }} label_filename: "labels.txt"
        }}]
    """
    _write(folder, name, model, config)
    labels = "".join(f"class {index}\n" for index in range(CLASSES))
    (folder / name / "labels.txt").write_text(labels, encoding="utf-8")


def write_slow_identity(folder: Path, name: str, delay_s: float) -> None:
    """INPUT0 [-1] INT32 comes back after as much work as one thread does in `delay_s`."""
    model = slow_identity(int(iterations_per_s(cpus=1) * delay_s))
    config = _config(ROWS, "INT32", -1, 1) + (
        "instance_group [{ count: 1 kind: KIND_CPU }]\n"
        'parameters { key: "intra_op_thread_count" value { string_value: "1" } }\n'
    )
    _write(folder, name, model, config)


def write_short_queue(folder: Path, name: str) -> None:
    """`slow`, one run at a time and one request waiting, for as long as it says itself."""
    write_graph(slow(), folder, name)
    config = """
        instance_group [{ count: 1 }]
        dynamic_batching {
          default_queue_policy { max_queue_size: 1 allow_timeout_override: true }
        }
    """
    (folder / name / "config.pbtxt").write_text(config, encoding="utf-8")


def _pairs(kind: int) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
    inputs, outputs = (
        [tensor(f"{side}{index}", kind, ("rows", 16)) for index in range(2)]
        for side in ("INPUT", "OUTPUT")
    )
    return inputs, outputs


def _cast(source: str, target: str, kind: int) -> NodeProto:
    return helper.make_node("Cast", [source], [target], to=kind)


def _write(folder: Path, name: str, model: onnx.ModelProto, config: str) -> None:
    write_graph(model, folder, name)
    (folder / name / "config.pbtxt").write_text(config, encoding="utf-8")


def _config(max_batch_size: int, datatype: str, dim: int, count: int) -> str:
    """INPUT0 to INPUT<count - 1>, as many outputs, and all of them of one kind."""
    kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    tensors = {
        side: ", ".join(
            f'{{ name: "{side.upper()}{index}" data_type: {kind} dims: [{dim}] }}'
            for index in range(count)
        )
        for side in ("input", "output")
    }
    return (
        f'platform: "onnxruntime_onnx"\nmax_batch_size: {max_batch_size}\n'
        f"input [{tensors['input']}]\noutput [{tensors['output']}]\n"
    )
