"""The settings of an export, the data to measure it on, and checks for every kind of model.

Imports no PyTorch: the command line makes its flags of the settings.
docs/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from export.errors import ExportError
from models.data.datasets import Example
from models.settings import REQUIRED, Settings, setting
from service.contract.manifest import Precision

Operator = Literal["Attention", "MultiHeadAttention"]
OnStep = Callable[[str], None]  # takes a line that says what is done now
REPOSITORY = Path("model_repository")

# Largest difference to PyTorch on the outputs that is let through. int8 is held to the accuracy
# on labelled data; without labelled data to the mean cosine of outputs and, unless int8 was asked
# for by name, to the agreement of answers (`export/checks/agreement.py`).
MAX_ABS_ERROR = {"fp32": 1e-4, "fp16": 5e-2, "int8": float("inf")}
AUTO: tuple[Precision, ...] = ("fp32", "int8")  # written by default
# By what a manifest calls them: ONNX Runtime's builds are distributions of different names.
PACKAGES = {
    "attendant": ("attendant",),
    "onnx": ("onnx",),
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime", "onnxruntime-openvino"),
    "torch": ("torch",),
}


@dataclass(frozen=True, slots=True)
class ExportSettings(Settings):
    """The settings of an export, beside the checkpoint and the files of data."""

    name: str = setting(REQUIRED, "Name under which the model is served.")
    repository: Path = setting(
        REPOSITORY,
        "Model repository. By default the one that `attendant serve` serves.",
        variable="ATTENDANT_MODEL_REPOSITORY",
    )
    precision: Literal["auto", Precision] = setting(
        "auto",
        "Precision of the graph. With auto, fp32 and the quantized graphs that are faster on some "
        "processors are written, and the server chooses. The others write one graph: fp32 is "
        "exact, int8 is quantized, fp16 is for encoders on CUDA; int8-weights and int4-weights "
        "quantize a decoder's weights in blocks, independently of other rows.",
    )
    with_fp16: bool = setting(
        False,
        "With --precision auto, write fp16 too, for servers with a GPU. It is half as large as "
        "fp32.",
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
        "of the memory and is generated faster, but the weights are held twice.",
    )
    example: str = setting(
        "", "Text to try the model with; by default a general sentence or its beginning."
    )
    calibration: tuple[str, ...] = setting(
        (), "Texts for the scales of int8, in place of those at hand."
    )

    def precisions(self, auto: tuple[Precision, ...]) -> tuple[Precision, ...]:
        """The precisions to write, `model.onnx` first."""
        if self.precision != "auto":
            return (self.precision,)
        return (*auto, "fp16") if self.with_fp16 else auto


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out data to measure on; each network uses its part."""

    labelled: Sequence[Example] = ()
    text: str | None = None


def check_fp32(settings: ExportSettings, whose: str) -> None:
    """Raise `ExportError` unless the precision is auto or fp32: only fp32 was measured."""
    precision = "fp16" if settings.with_fp16 else settings.precision
    if precision not in ("auto", "fp32"):
        raise ExportError(f"precision is {precision}, {whose} is fp32")


def check_name(name: str) -> None:
    if not name or name.startswith(".") or "/" in name:
        raise ExportError(f"name is '{name}', expected a folder name that does not start with '.'")


def versions() -> dict[str, str]:
    """The versions of the packages that an export depends on."""
    return {name: _version_of(names) for name, names in PACKAGES.items()}


def _version_of(names: Sequence[str]) -> str:
    """That of the first that is installed; a checkout of ours may be in use without being so."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "0+checkout" if "attendant" in names else "unknown"
