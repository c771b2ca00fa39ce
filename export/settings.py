"""The settings of an export, the data to measure it on, and checks for every kind of model.

Imports no PyTorch: the command line makes its flags of the settings.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, NamedTuple

from export.errors import ExportError
from models.data.datasets import Example as LabelledExample
from models.settings import REQUIRED, Settings, setting
from service.contract.manifest import Example, Layout, Precision, Variant
from service.contract.precision import HALF

Operator = Literal["Attention", "MultiHeadAttention"]
Target = Literal["cpu", "cuda", "all"]
OnStep = Callable[[str], None]  # takes a line that says what is done now
REPOSITORY = Path("model_repository")
MAX_LORA_RANK, MAX_LORA_SLOTS = 256, 64
TARGETS_BY_PEFT = {  # names that most families of transformers have
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "output",
    "gate_proj": "gate",
    "up_proj": "expand",
    "down_proj": "contract",
}
LORA_TARGETS = tuple(TARGETS_BY_PEFT.values())
REPOSITORY_FLAGS = ("--model-repository", "--repository")  # the first is that of `serve`

# Largest difference to PyTorch on the outputs that is let through. int8 is held to the accuracy
# on labelled data; without labelled data to the mean cosine of outputs and, unless int8 was asked
# for by name, to the agreement of answers (`export/checks/agreement.py`).
# bf16 has three bits less than fp16.
MAX_ABS_ERROR = {"fp32": 1e-4, "fp16": 5e-2, "bf16": 4e-1, "int8": float("inf")}
AUTO: tuple[Precision, ...] = ("fp32", "int8")  # written by default
# By what a manifest calls them: ONNX Runtime's builds are distributions of different names.
PACKAGES = {
    "attendant": ("attendant",),
    "onnx": ("onnx",),
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime", "onnxruntime-openvino"),
    "torch": ("torch",),
}


class GraphKind(NamedTuple):
    """Kind of a graph, which tells the graphs of a version apart."""

    precision: Precision
    layout: Layout = ""

    @property
    def name(self) -> str:
        """Name of the kind, as `Variant.kind`."""
        return Variant(self.precision, layout=self.layout).kind


@dataclass(frozen=True, slots=True)
class ExportSettings(Settings):
    """The settings of an export, beside the checkpoint and the files of data."""

    name: str = setting(REQUIRED, "Name under which the model is served.")
    repository: Path = setting(
        REPOSITORY,
        "Model repository. By default the one that `attendant serve` serves.",
        variable="ATTENDANT_MODEL_REPOSITORY",
        spelt=REPOSITORY_FLAGS,
    )
    precision: Literal["auto", Precision] = setting(
        "auto",
        "Precision of the graph. With auto, fp32 and the quantized graphs that are faster on some "
        "processors are written, and the server chooses. The others write one graph: fp32 is "
        "exact, int8 is quantized, int8-weights and int4-weights quantize a decoder's weights in "
        "blocks, independently of other rows; stored, which auto is for a decoder whose folder had "
        "rounded weights, keeps those numbers; fp16 and bf16 are for CUDA, see --target.",
    )
    target: Target = setting(
        "cpu",
        "Device to write graphs for: cpu; cuda, in fp16, or bf16 by --precision, in each layout "
        "that a GPU may compute fastest, refused where CUDA has no kernel for a node; or all.",
    )
    version: int | None = setting(None, "Version to write; by default the next free one.", 1)
    max_batch_size: int = setting(
        64,
        "Rows per batch of a new model; more than 64 were not faster on any CPU. An existing model "
        "keeps its configuration.",
        1,
        65_536,
    )
    attention: Literal["auto", Operator] = setting(
        "auto",
        "Fused attention operator: ONNX's Attention or com.microsoft's MultiHeadAttention; auto "
        "takes the one that is faster for the precision.",
    )
    max_accuracy_drop: float = setting(
        0.005,  # half a point
        "Refuse a precision whose accuracy on the labelled data drops by more than this.",
        0.0,
        1.0,
    )
    max_perplexity_rise: float = setting(
        0.05,  # by a twentieth
        "Refuse a precision that raises perplexity on the held-out text by more than this share.",
        0.0,
    )
    kv_cache: Literal["float", "int8"] = setting(
        "float",
        "Decoders: type of the KV cache of quantized graphs. With int8, a sequence takes a quarter "
        "of the memory and is generated faster, but weights are held twice in memory. Its scales "
        "are measured on the texts of --calibration, joined to rows as long as the context: texts "
        "that are not those of --held-out.",
    )
    lora_rank: int = setting(
        0,
        "Decoders: write a second graph that serves adapters up to this rank beside the model "
        "itself (docs/how-to/adapters.md); 0 writes none.",
        0,
        MAX_LORA_RANK,
    )
    lora_slots: int = setting(
        4, "Adapters that the second graph computes at once, whatever is loaded.", 1, MAX_LORA_SLOTS
    )
    lora_targets: str = setting(
        "query,value",
        "Products of each layer that adapters may change, with commas: query, key, value, output, "
        "gate, expand, contract.",
    )
    example: str = setting("", "Text to try the model with; by default the first of its examples.")
    examples: tuple[Example, ...] = setting((), "Examples, in place of general texts.")
    calibration: tuple[str, ...] = setting(
        (), "Texts to calibrate int8 and 4-bit weights on, in place of those at hand."
    )
    calibration_images: tuple[bytes, ...] = setting(
        (), "PNG and JPEG files to calibrate int8 on, for a model that reads images."
    )

    def adapted_products(self) -> tuple[str, ...]:
        """The products that adapters may change. Raises `ExportError` for unknown ones."""
        targets = tuple(dict.fromkeys(part.strip() for part in self.lora_targets.split(",")))
        unknown = [target for target in targets if target not in LORA_TARGETS]
        if unknown:
            raise ExportError(
                f"lora_targets has '{unknown[0]}', expected some of {', '.join(LORA_TARGETS)}"
            )
        return targets

    def graphs(
        self, auto: tuple[Precision, ...], other_layout: Layout = ""
    ) -> tuple[GraphKind, ...]:
        """The graphs to write, `model.onnx` first; `auto` are the precisions for a CPU.

        `other_layout` is the one beside the default that is written for CUDA, if there is one.
        Raises `ExportError` where the target has no such precision.
        """
        is_half = self.precision in HALF
        on_cuda = [GraphKind(self.precision if is_half else "fp16")]  # type: ignore[arg-type]
        if other_layout:
            on_cuda.append(GraphKind(on_cuda[0].precision, other_layout))
        if self.target == "cuda":
            if self.precision != "auto" and not is_half:
                raise ExportError(f"precision is {self.precision}, for CUDA it is fp16 or bf16")
            return tuple(on_cuda)
        if self.target == "cpu" and self.precision == "bf16":
            raise ExportError("precision is bf16, which is for CUDA: add --target cuda")
        is_named = self.precision != "auto" and not (is_half and self.target == "all")
        on_cpu = [GraphKind(each) for each in ((self.precision,) if is_named else auto)]  # type: ignore[arg-type]
        return (*on_cpu, *on_cuda) if self.target == "all" else tuple(on_cpu)


@dataclass(frozen=True, slots=True)
class AdapterSettings(Settings):
    """Place of an adapter, and the model that it is for."""

    name: str = setting(REQUIRED, "Name under which the adapter is served.")
    base: str = setting(REQUIRED, "Name of its base model in the repository.")
    checkpoint: str = setting(
        REQUIRED,
        "Checkpoint of the base model: the folder or hub id that it was exported from.",
    )
    repository: Path = setting(
        REPOSITORY,
        "Model repository. By default the one that `attendant serve` serves.",
        variable="ATTENDANT_MODEL_REPOSITORY",
        spelt=REPOSITORY_FLAGS,
    )
    version: int | None = setting(None, "Version to write; by default the next free one.", 1)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out data to measure on; each network uses its part."""

    labelled: Sequence[LabelledExample] = ()
    text: str | None = None


def check_float(settings: ExportSettings, whose: str, also: Iterable[Precision] = ()) -> None:
    """Raise `ExportError` unless the precision is fp32 on a CPU; on CUDA fp16 and bf16 too."""
    if settings.target == "cpu" or settings.precision not in HALF:
        check_fp32(settings, whose, also)


def check_fp32(settings: ExportSettings, whose: str, also: Iterable[Precision] = ()) -> None:
    """Raise `ExportError` unless the precision is auto or fp32, or one that was measured `also`."""
    measured = ("fp32", *also)
    if settings.precision not in ("auto", *measured):
        raise ExportError(f"precision is {settings.precision}, {whose} is {' or '.join(measured)}")


def check_name(name: str) -> None:
    if not name or name.startswith(".") or "/" in name:
        raise ExportError(f"name is '{name}', expected a folder name that does not start with '.'")


def versions() -> dict[str, str]:
    """The versions of the packages that an export depends on."""
    return {name: _version_of(names) for name, names in PACKAGES.items()}


def _version_of(names: Sequence[str]) -> str:
    """Version of the first package that is installed; a checkout may be in use without being so."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "0+checkout" if "attendant" in names else "unknown"
