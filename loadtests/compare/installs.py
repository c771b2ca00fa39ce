"""Where other engines and servers are installed: an environment for each, with its versions."""

from loadtests.compare.environments import Environment, Own

TORCH = "torch==2.13.0"  # in every call, or what follows brings another build of it
HUGGING_FACE = "transformers==5.23.0"


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
INFINITY = _environment(
    "infinity",
    f"install {TORCH} infinity-emb[torch,server]==0.0.78 transformers<5",
    shown="infinity_emb torch transformers",
)
SENTENCE_TRANSFORMERS = _environment(
    "sentence-transformers",
    f"install {TORCH} {HUGGING_FACE} sentence-transformers==6.2.0",
    shown="sentence-transformers torch transformers",
)
OIP_CLIENT = "tritonclient[grpc]==2.73.0"
ON_ONNXRUNTIME = {  # servers that run a function of ours, by the name that the tables have
    name: _environment(
        folder, f"install {packages} onnxruntime==1.31.1 tokenizers", shown=f"{shown} onnxruntime"
    )
    for name, folder, packages, shown in (
        ("Triton", "triton", f"nvidia-pytriton==0.7.0 {OIP_CLIENT}", "nvidia-pytriton"),
        ("MLServer", "mlserver", "mlserver==1.7.1", "mlserver"),
        ("LitServe", "litserve", "litserve==0.2.19", "litserve"),
        ("BentoML", "bentoml", "bentoml==1.4.39", "bentoml"),
        ("Ray Serve", "ray", f"ray[serve,serve-grpc]==2.60.0 {OIP_CLIENT}", "ray"),
    )
}
