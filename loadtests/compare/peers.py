"""Who takes part: one table of other engines and servers, and ours beside them.

A row says where a program is installed, what drives it (`worker.py` has the protocol), and what it
opens of each kind of model. To add one, add its environment to `installs.py` and its row here, and
write its worker; of a server, its start in `servers/launching.py`.

Rounded weights come with what is each engine's default beside them: OpenVINO computes in bf16 where
the processor has it and keeps its cache in int8, llama.cpp rounds activations and keeps a float16
cache. Embedders and rerankers are given texts, and tokenize, sort and batch them themselves; what
has no loop of its own runs batches of 16 texts, sorted by length. A server runs on the float32
graph that the usual exporter writes, and on the very int8 graph that ours serves; with its own
batching, as its guide has it, and with none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loadtests.compare.conversions import (
    Opens,
    exported,
    folder,
    for_ctranslate2,
    for_openvino,
    gguf,
    our_export,
    our_int8,
    quantized,
    task_of,
)
from loadtests.compare.encoders import ENCODERS
from loadtests.compare.environments import MODELS, Conversion, Environment
from loadtests.compare.installs import (
    CTRANSLATE2,
    INFINITY,
    LLAMACPP,
    ON_ONNXRUNTIME,
    ONNXRUNTIME,
    OPENVINO,
    OWN,
    SENTENCE_TRANSFORMERS,
    TRANSFORMERS,
)
from loadtests.compare.llamas import SHAPES, SMOLLM2
from loadtests.compare.models import BERT, GPT2
from loadtests.compare.traffic import EMBED, GENERATE
from loadtests.load.machine import instructions
from loadtests.load.server import flags_of

# Kinds of models, beside BERT and GPT-2 themselves.
LLAMA, ENCODER, SERVED = "llama", "encoder", "served encoder"
DRIVER, BARE = "servers.driver", "workers.bare_session"
BATCH_ROWS = 8  # as in most of the servers' guides; 32 measured slower for all on real lengths
QUICK_SERVERS = ("Triton", "MLServer", "LitServe")
OUR_PRECISIONS = {LLAMA: ("fp32", "int8", "int4-weights"), SERVED: ("int8",)}
# An int8 cache changes 14 % of the tokens of random weights in the shape of Qwen2.5, and an export
# takes at most 10.
INT8_CACHE = (GPT2, SMOLLM2)


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


def _of_encoder(model: str) -> dict[str, Any]:
    if model not in ENCODERS:
        return {}
    return {"pooling": ENCODERS[model].pooling, "max_tokens": ENCODERS[model].max_tokens}


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
        )


FLOAT32, BF16 = {"dtype": "float32"}, {"dtype": "bfloat16"}
PLAIN: dict[str, Any] = {"properties": {}}
EXACT = {"properties": {"INFERENCE_PRECISION_HINT": "f32"}}
EXACT_CACHE = {"properties": {**EXACT["properties"], "KV_CACHE_PRECISION": "f32"}}
DECODERS = (GPT2, LLAMA)
ALL_THREE: dict[str, Opens] = dict.fromkeys((BERT, *DECODERS), folder)
OV_DECODERS = dict.fromkeys(DECODERS, exported(OPENVINO))
OV_ENCODERS = {BERT: exported(OPENVINO), ENCODER: for_openvino()}
ORT = dict.fromkeys((BERT, GPT2, ENCODER), exported(ONNXRUNTIME))
CT2 = dict.fromkeys((BERT, GPT2), for_ctranslate2)
GRAPHS: dict[str, Opens] = {"float32": exported(ONNXRUNTIME), "int8": our_int8}
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
    Peer("openvino int8 weights", OPENVINO, "int8", {ENCODER: for_openvino("int8")}, PLAIN),
    Peer("openvino-genai default", OPENVINO, "bf16", OV_DECODERS, PLAIN, DECODERS),
    Peer("openvino-genai float32", OPENVINO, "float32", OV_DECODERS, EXACT_CACHE),
    Peer("openvino-genai int8 weights", OPENVINO, "int8-weights",
         dict.fromkeys(DECODERS, exported(OPENVINO, "int8")), PLAIN, (LLAMA,)),
    Peer("openvino-genai int4 weights", OPENVINO, "int4", {LLAMA: exported(OPENVINO, "int4")},
         PLAIN),
    Peer("onnxruntime float32", ONNXRUNTIME, "float32", ORT, quick=(BERT, ENCODER)),
    Peer("onnxruntime int8", ONNXRUNTIME, "int8", dict.fromkeys(ORT, quantized),
         quick=(BERT, ENCODER)),
    Peer("ctranslate2 float32", CTRANSLATE2, "float32", CT2, {"compute_type": "float32"}),
    Peer("ctranslate2 int8", CTRANSLATE2, "int8", CT2, {"compute_type": "int8"}),
    Peer("llama.cpp f32", LLAMACPP, "float32", {GPT2: gguf("f32")}, {"cache": "f32"}),
    Peer("llama.cpp bf16", LLAMACPP, "bf16", dict.fromkeys(DECODERS, gguf("bf16")),
         {"cache": "f16"}),
    Peer("llama.cpp q8_0", LLAMACPP, "q8_0", dict.fromkeys(DECODERS, gguf("q8_0")),
         {"cache": "f16"}, (LLAMA,)),
    Peer("llama.cpp q4_0", LLAMACPP, "q4_0", dict.fromkeys(DECODERS, gguf("q4_0")),
         {"cache": "f16"}, (LLAMA,)),
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
    Peer("bare session int8", OWN, "int8", {SERVED: our_int8}, quick=(SERVED,), worker=BARE),
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
