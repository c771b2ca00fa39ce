"""The settings of an export, and checks for every kind of model."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from export.errors import ExportError
from service.contract.manifest import Precision

Operator = Literal["Attention", "MultiHeadAttention"]


# Largest difference to PyTorch on the outputs that is let through. int8 is held to the accuracy
# on labelled data; without labelled data to the mean cosine of outputs and, unless int8 was asked
# for by name, to the agreement of answers (`export/checks/agreement.py`).
MAX_ABS_ERROR = {"fp32": 1e-4, "fp16": 5e-2, "int8": float("inf")}
AUTO: tuple[Precision, ...] = ("fp32", "int8")  # written by default


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """The settings of an export, beside the checkpoint."""

    name: str
    repository: Path
    precision: Precision | Literal["auto"] = "fp32"
    with_fp16: bool = False  # under auto, for servers with a GPU
    operator: Operator | None = None  # None: what measured faster for the precision
    version: int | None = None  # None: the next free one
    max_batch_size: int = 64
    max_accuracy_drop: float = 0.005  # half a point
    max_perplexity_rise: float = 0.05  # by a twentieth
    kv_cache: Literal["float", "int8"] = "float"  # of decoders whose weights are rounded
    example: str = ""
    calibration: tuple[str, ...] = ()  # texts for int8's scales; none: those at hand

    def precisions(self, auto: tuple[Precision, ...]) -> tuple[Precision, ...]:
        """The precisions to write, `model.onnx` first."""
        if self.precision != "auto":
            return (self.precision,)
        return (*auto, "fp16") if self.with_fp16 else auto


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
    return {name: version(name) for name in ("attendant", "onnx", "onnxruntime", "torch")}
