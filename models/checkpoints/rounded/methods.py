"""The ways of rounding that folders declare in config.json, and their weights in float32 again.

`quantization_config` (and `compression_config` of older files, `quantization` of MLX) names the
method. A method that is not in `METHODS`, or a setting of it that changes what the numbers mean, is
refused by name.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoints.left_out import named
from models.checkpoints.rounded import forms
from models.checkpoints.ways_out import NOT_ROUNDED
from models.errors import CheckpointError, shown
from models.remarks import remark

FIELDS = ("quantization_config", "quantization", "compression_config")  # the second is of MLX
MLX = "mlx"
Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    """One way to store a weight: the tensor that tells it, and those that belong to it."""

    sign: str  # the end of a name
    parts: tuple[str, ...]
    restore: Callable[[forms.Parts, Settings], Tensor]


@dataclass(frozen=True, slots=True)
class Method:
    """A program's way of rounding: how it is called, its forms, and settings that it must have."""

    title: str
    forms: tuple[Form, ...]
    only: Mapping[str, tuple[object, ...]] = field(default_factory=dict)


_FLOATS = ("weight", "weight_zero_point")
GPTQ_FORM = Form("qweight", ("qzeros", "scales", "g_idx"), forms.gptq)
AWQ_FORM = Form("qweight", ("qzeros", "scales"), forms.awq)
SCALED = (
    Form("weight_scale_inv", _FLOATS, forms.scaled),
    Form("weight_scale", (*_FLOATS, "weight_scale_2"), forms.scaled),
)
_GROUPS = ("weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")
_STATES = ("weight", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map")
_HQQ = ("scale", "zero", "nbits", "group_size", "shape", "axis")
_HQQ_NOTES = ("packing", "unpack_view_dtype", "view_as_float", "quant_scale", "quant_zero")
_HQQ_FLAGS = ("compute_dtype", "offload_meta", "encoded_state_dict", "stores_quant_config")
_HQQ_CHOICES = ("channel_wise", "optimize", "round_zero")

METHODS: Mapping[str, Method] = {
    "gptq": Method("GPTQ", (GPTQ_FORM,), {"checkpoint_format": (None, "gptq", "gptq_v2")}),
    "awq": Method("AWQ", (AWQ_FORM,), {"version": (None, "gemm", "GEMM"), "bits": (None, 4)}),
    "compressed-tensors": Method(
        "compressed-tensors",
        (Form("weight_packed", (*_GROUPS, "weight_global_scale"), forms.packed), *SCALED),
        {
            "format": (
                *(None, "dense", "pack-quantized", "int-quantized", "float-quantized"),
                *("naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized"),
                "mixed-precision",
            ),
            "transform_config": (None, {}),
        },
    ),
    "fp8": Method("FP8", SCALED),
    "fbgemm_fp8": Method("FP8", SCALED),
    "modelopt": Method("Model Optimizer", SCALED, {"quant_algo": (None, "FP8", "NVFP4")}),
    "bitsandbytes": Method(
        "bitsandbytes",
        (
            Form("weight.absmax", (*_STATES, *forms.NF4_STATES), forms.four_bits),
            Form("SCB", ("weight", "weight_format"), forms.rows),
        ),
    ),
    "hqq": Method(
        "HQQ", (Form("W_q", (*_HQQ, *_HQQ_NOTES, *_HQQ_FLAGS, *_HQQ_CHOICES), forms.hqq),)
    ),
    MLX: Method(
        "MLX", (Form("scales", ("weight", "biases"), forms.mlx),), {"mode": (None, "affine")}
    ),
}
# Scales of activations and of the cache, which are computed in floating point here.
OF_ACTIVATIONS = re.compile(
    r"\.((input|output)_(scale|zero_point|global_scale)|[qkv]_(scale|zero_point))$"
)


@dataclass(frozen=True, slots=True)
class Rounding:
    """The method and the settings that a config.json declares."""

    name: str
    settings: Settings
    path: Path

    @property
    def method(self) -> Method:
        return METHODS[self.name]

    def restored(self, tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
        """All tensors of a file, with weights in float32 under the names of unrounded ones.

        Raises CheckpointError, which names the weight, where tensors are missing or contradict
        one another.
        """
        left, restored = dict(tensors), dict[str, Tensor]()
        for form in self.method.forms:
            ending = f".{form.sign}"
            for name in [name for name in left if name.endswith(ending)]:
                module = name[: -len(ending)]
                ends = (form.sign, *form.parts)
                found = {
                    end: left.pop(f"{module}.{end}") for end in ends if f"{module}.{end}" in left
                }
                restored[f"{module}.weight"] = self._restore(form, found, module, path)
        if not restored:
            raise CheckpointError(
                f"{path} has no weight in a form of {self.method.title}, which {self.path} "
                f"declares: {NOT_ROUNDED}"
            )
        activations = [name for name in left if OF_ACTIVATIONS.search(name)]
        for name in activations:
            del left[name]
        if activations:
            remark(
                f"{path}: left out {named(activations)}: scales that activations or the cache are "
                "rounded by elsewhere; here the precision of the export decides"
            )
        twice = sorted(restored.keys() & left.keys())
        if twice:
            raise CheckpointError(f"{path}: {twice[0]} is there twice, rounded and not rounded")
        remark(
            f"{path}: {len(restored)} weights that {self.method.title} has rounded are floating "
            "point numbers again, of the same values; attendant export --precision decides how "
            "they are served"
        )
        return {**left, **restored}

    def _restore(self, form: Form, parts: dict[str, Tensor], module: str, path: Path) -> Tensor:
        settings = {**self.settings, "of": self._of(module)}
        try:
            forms.check_filled(parts)
            weight = form.restore(parts, settings)
        except KeyError as error:
            raise CheckpointError(
                f"{path}: {module}.{error.args[0]} is missing, which a weight of "
                f"{self.method.title} has"
            ) from error
        except (ValueError, RuntimeError, IndexError, TypeError, ArithmeticError) as error:
            what = str(error).split("\n")[0]
            raise CheckpointError(
                f"{path}: the tensors of {module}, rounded by {self.method.title}, contradict one "
                f"another: {what}"
            ) from error
        return weight.to(torch.float32).contiguous()

    def _of(self, module: str) -> object:
        """Settings of one weight, where the method states some by name."""
        own = self.settings.get(module)
        return own if isinstance(own, Mapping) else self.settings


def rounding_of(values: Mapping[str, Any], path: Path) -> Rounding | None:
    """The rounding that a config.json declares; None where its weights are floating point numbers.

    Raises CheckpointError for a method that cannot be read, and for a setting that is not known.
    """
    text = values.get("text_config")
    places = (values, *([text] if isinstance(text, Mapping) else []))
    stated = [(field, place[field]) for place in places for field in FIELDS if place.get(field)]
    if not stated:
        return None
    name_of_field, settings = stated[0]
    if not isinstance(settings, Mapping):
        raise CheckpointError(f"{path}: {name_of_field} is {shown(settings)}, expected an object")
    name = _method_name(settings)
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise CheckpointError(
            f"{path}: {name_of_field} is not supported, and is {shown(settings)}: its "
            f"method {shown(name)} is none of {known}; {NOT_ROUNDED}"
        )
    for key, allowed in METHODS[name].only.items():
        if settings.get(key) not in allowed:
            raise CheckpointError(
                f"{path}: {key} of {name_of_field} is {shown(settings[key])}, expected one of "
                f"{', '.join(str(each) for each in allowed if each)}; {NOT_ROUNDED}"
            )
    return Rounding(name, settings, path)


def _method_name(settings: Settings) -> str:
    if "quant_method" not in settings and {"bits", "group_size"} <= settings.keys():
        return MLX
    name = str(settings.get("quant_method")).lower()
    if name in ("auto-round", "auto_round"):  # in the form of another program, which it names
        return str(settings.get("packing_format", "")).rpartition("auto_")[2]
    if name == "bitsandbytes" or settings.get("load_in_4bit") or settings.get("load_in_8bit"):
        return "bitsandbytes"
    return name
