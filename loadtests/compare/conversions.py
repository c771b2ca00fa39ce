"""What peers open of a model: the folder as Hugging Face writes it, or files converted from it."""

from collections.abc import Callable
from typing import TypeAlias

from loadtests.compare.encoders import ENCODERS
from loadtests.compare.environments import Conversion, Environment
from loadtests.compare.installs import CTRANSLATE2, LLAMACPP, ONNXRUNTIME, OPENVINO, OWN
from loadtests.compare.models import BERT
from loadtests.compare.traffic import CLASSIFY, EMBED, GENERATE

INT4_GROUP = 64  # divides the sizes of both Llamas, which OpenVINO's own 128 does not
NOT_IN_OPTIMUM = ("modernbert",)  # whose exporter to OpenVINO refuses them
Opens: TypeAlias = Callable[[str], Conversion | str | None]  # of a model; None: it cannot


def task_of(model: str) -> str:
    if model in ENCODERS:
        return ENCODERS[model].task
    return CLASSIFY if model == BERT else GENERATE


def folder(model: str) -> str:
    """The model as Hugging Face writes it."""
    return model


def exported(by: Environment, weights: str = "fp32") -> Opens:
    """An export by Hugging Face's exporter, for ONNX Runtime or OpenVINO."""
    target = "openvino" if by is OPENVINO else "onnx"
    rounded = f"--weight-format {weights} " * (by is OPENVINO)
    rounded += f"--group-size {INT4_GROUP} " * (weights == "int4")
    tasks = {EMBED: "feature-extraction", GENERATE: "text-generation-with-past"}

    def opens(model: str) -> Conversion:
        task = tasks.get(task_of(model), "text-classification")
        after = " && cp {model}/tokenizer.json {out}" * (model in ENCODERS)
        return Conversion(
            f"{by.name}-{model}" + f"-{weights}" * (weights != "fp32"),
            model,
            by,
            f"{{bin}}/optimum-cli export {target} --model {{model}} --task {task} "
            f"--library transformers {rounded}{{out}}{after}",
        )

    return opens


def for_openvino(weights: str = "fp32") -> Opens:
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


def for_ctranslate2(model: str) -> Conversion:
    command = "{bin}/ct2-transformers-converter --model {model} --output_dir {out}"
    head = " && cp {model}/model.safetensors {out}" * (model == BERT)  # it is not converted
    return Conversion(f"ctranslate2-{model}", model, CTRANSLATE2, command + head)


def gguf(kind: str) -> Opens:
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


def our_int8(model: str) -> Conversion:
    return our_export(model, "int8")
