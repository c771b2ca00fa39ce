"""Who takes part with embedders and rerankers: ours in process and served, and other engines.

All are given texts, and tokenize, sort and batch them themselves; what has no loop of its own runs
batches of 16 texts, sorted by length, which pads next to nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadtests.compare.encoders import ENCODERS
from loadtests.compare.environments import Conversion, Environment
from loadtests.compare.peer import Peer
from loadtests.compare.peers import (
    HUGGING_FACE,
    INFINITY,
    ONNXRUNTIME,
    OPENVINO,
    PRECISIONS,
    TORCH,
    our_engine,
    our_export,
)
from loadtests.compare.traffic import RERANK
from loadtests.load.machine import instructions

NOT_IN_OPTIMUM = ("modernbert",)  # whose exporter to OpenVINO refuses them
SENTENCE_TRANSFORMERS = Environment(
    "sentence-transformers",
    (f"install {TORCH} {HUGGING_FACE} sentence-transformers==6.2.0",),
    shown=("sentence-transformers", "torch", "transformers"),
)


def our_encoders(
    model: str, precisions: Sequence[str], settings: Mapping[str, object]
) -> list[Peer]:
    """What `attendant export` wrote, in process and through the server."""
    peers = []
    for precision in precisions or PRECISIONS:
        exported = our_export(model, precision)
        one = our_engine(ENCODERS[model].task, precision, exported, settings)
        peers += [one, replace(one, name=f"served {one.name}", worker="workers.attendant_served")]
    return peers


def encoder_peers(model: str) -> list[Peer]:
    """Other engines; the quick mode leaves out what is slower than another row of the same bits."""
    graph = optimum(model, ONNXRUNTIME, "onnx")
    reads_onnx = ENCODERS[model].kind in NOT_IN_OPTIMUM
    plain = _out_of_onnx(model) if reads_onnx else optimum(model, OPENVINO, "openvino")
    exact = {"properties": {"INFERENCE_PRECISION_HINT": "f32"}}
    # fmt: off
    peers = [
        _peer("sentence-transformers float32", SENTENCE_TRANSFORMERS, "float32", model, model,
              {"dtype": "float32"}, True),
        _peer("sentence-transformers bf16", SENTENCE_TRANSFORMERS, "bf16", model, model,
              {"dtype": "bfloat16"}, True),
        _peer("openvino default", OPENVINO, "bf16", model, plain, {"properties": {}}, True),
        _peer("openvino float32", OPENVINO, "float32", model, plain, exact),
        _peer("openvino int8 weights", OPENVINO, "int8", model,
              optimum(model, OPENVINO, "openvino", "int8"), {"properties": {}}),
        _peer("onnxruntime float32", ONNXRUNTIME, "float32", model, graph, {}, True),
        _peer("onnxruntime int8", ONNXRUNTIME, "int8", model, quantized(model), {}, True),
        _peer("Infinity float32", INFINITY, "float32", model, model, {}, True),
    ]
    # fmt: on
    if reads_onnx:
        peers = [peer for peer in peers if peer.name != "openvino int8 weights"]
    return [peer for peer in peers if has_bf16() or not peer.name.endswith("bf16")]


def has_bf16() -> bool:
    """Whether the processor multiplies bf16: PyTorch is ten times slower where it does not."""
    return bool({"avx512_bf16", "amx_bf16"} & set(instructions()))


def _peer(
    name: str,
    installed: Environment,
    precision: str,
    model: str,
    opened: Conversion | str,
    options: Mapping[str, Any],
    quick: bool = False,
) -> Peer:
    encoder = ENCODERS[model]
    worker = f"workers.{installed.name.replace('-', '_')}"
    known = {**options, "pooling": encoder.pooling, "max_tokens": encoder.max_tokens}
    return Peer(name, installed, worker, encoder.task, precision, opened, known, in_quick=quick)


def optimum(model: str, installed: Environment, target: str, weights: str = "fp32") -> Conversion:
    """An export by Hugging Face's exporter, with the tokenizer beside."""
    is_reranker = ENCODERS[model].task == RERANK
    task = "text-classification" if is_reranker else "feature-extraction"
    rounded = f"--weight-format {weights} " if target == "openvino" else ""
    return Conversion(
        f"{installed.name}-{model}" + f"-{weights}" * (weights != "fp32"),
        model,
        installed,
        f"{{bin}}/optimum-cli export {target} --model {{model}} --task {task} "
        f"--library transformers {rounded}{{out}} && cp {{model}}/tokenizer.json {{out}}",
    )


def _out_of_onnx(model: str) -> Conversion:
    """OpenVINO's graph out of the ONNX file that ONNX Runtime runs, in float32."""
    source = f"{{model}}/../onnxruntime-{model}/model.onnx"
    return Conversion(
        f"openvino-{model}",
        model,
        OPENVINO,
        f"mkdir {{out}} && {{bin}}/ovc {source} --compress_to_fp16=False "
        "--output_model {out}/openvino_model.xml && cp {model}/tokenizer.json {out}",
    )


def quantized(model: str) -> Conversion:
    command = "{bin}/python -m loadtests.compare.workers.quantize "
    source = f"{{model}}/../onnxruntime-{model}"
    return Conversion(f"onnxruntime-{model}-int8", model, ONNXRUNTIME, f"{command}{source} {{out}}")
