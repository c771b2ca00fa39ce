"""Who takes part with the two decoders of Llama's kind, ours and others, as `peers.py` has GPT-2's.

Rounded weights come with what is each engine's default beside them: OpenVINO computes in bf16 where
the processor has it and keeps its cache in int8, llama.cpp rounds activations and keeps a float16
cache.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.compare.environments import Conversion, Environment
from loadtests.compare.llamas import SMOLLM2
from loadtests.compare.peer import Peer
from loadtests.compare.peers import LLAMACPP, OPENVINO, TRANSFORMERS, our_engine, our_export
from loadtests.compare.traffic import GENERATE

INT4_GROUP = 64  # divides the sizes of both models, which OpenVINO's own 128 does not
PRECISIONS = ("fp32", "int8", "int4-weights")
# An int8 cache changes 14 % of the tokens of random weights in this shape of Qwen2.5, and an export
# takes at most 10.
INT8_CACHE = (SMOLLM2,)


def our_llamas(model: str, precisions: Sequence[str], settings: Mapping[str, object]) -> list[Peer]:
    """Our engine over what `attendant export` wrote of a Hugging Face folder.

    What rounds weights rounds its cache too, as OpenVINO does by default, where it can be exported.
    """
    peers = []
    for precision in precisions or PRECISIONS:
        cache = "int8" if precision != "fp32" and model in INT8_CACHE else ""
        exported = our_export(model, precision, cache)
        peers.append(our_engine(GENERATE, precision, exported, settings))
    return peers


def llama_peers(model: str) -> list[Peer]:
    """Other engines; the quick mode leaves out what is slower than another row of the same bits."""
    plain, int8, int4 = (_openvino(model, kind) for kind in ("fp32", "int8", "int4"))
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    gguf = {kind: _gguf(model, kind) for kind in ("bf16", "q8_0", "q4_0")}
    cache = {"cache": "f16"}
    # fmt: off
    return [
        _peer("transformers float32", TRANSFORMERS, "float32", model, {"dtype": "float32"}, True),
        _peer("transformers bf16", TRANSFORMERS, "bf16", model, {"dtype": "bfloat16"}),
        _peer("openvino-genai float32", OPENVINO, "float32", plain, {"properties": exact}),
        _peer("openvino-genai default", OPENVINO, "bf16", plain, {"properties": {}}, True),
        _peer("openvino-genai int8 weights", OPENVINO, "int8", int8, {"properties": {}}, True),
        _peer("openvino-genai int4 weights", OPENVINO, "int4", int4, {"properties": {}}),
        _peer("llama.cpp bf16", LLAMACPP, "bf16", gguf["bf16"], cache),
        _peer("llama.cpp q8_0", LLAMACPP, "q8_0", gguf["q8_0"], cache, True),
        _peer("llama.cpp q4_0", LLAMACPP, "q4_0", gguf["q4_0"], cache, True),
    ]
    # fmt: on


def _peer(
    name: str,
    environment: Environment,
    precision: str,
    model: Conversion | str,
    options: dict[str, Any],
    quick: bool = False,
) -> Peer:
    worker = f"workers.{environment.name}"
    return Peer(name, environment, worker, GENERATE, precision, model, options, in_quick=quick)


def _openvino(model: str, weights: str) -> Conversion:
    groups = f"--group-size {INT4_GROUP} " * (weights == "int4")
    return Conversion(
        f"openvino-{model}-{weights}",
        model,
        OPENVINO,
        "{bin}/optimum-cli export openvino --model {model} --task text-generation-with-past "
        f"--library transformers --weight-format {weights} {groups}{{out}}",
    )


def _gguf(model: str, kind: str) -> Conversion:
    return Conversion(
        f"llamacpp-{model}-{kind}",
        model,
        LLAMACPP,
        "mkdir {out} && {bin}/python -m loadtests.compare.workers.gguf "
        f"{{bin}}/../source/vendor/llama.cpp {{model}} {{out}}/model.gguf {kind}",
    )
