"""Weights of the ways of rounding that can be read, in float32 again.

`METHODS` has the forms in which each program stores a weight; `restored` takes them out of all the
tensors of a folder.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.lazy import LazyTensor, realised
from models.checkpoints.left_out import named
from models.checkpoints.rounded import forms
from models.checkpoints.rounded.declared import MLX, Rounding, Settings
from models.checkpoints.ways_out import NOT_ROUNDED
from models.errors import CheckpointError
from models.remarks import remark


@dataclass(frozen=True, slots=True)
class Form:
    """One way to store a weight: the tensor that tells it, and those that belong to it."""

    sign: str  # the end of a name
    parts: tuple[str, ...]
    restore: Callable[[forms.Parts, Settings], Tensor]


@dataclass(frozen=True, slots=True)
class Stored:
    """The tensors that a rounded weight is stored as, by the ends of their names."""

    form: Form
    parts: Mapping[str, Tensor]
    settings: Settings


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

METHODS: Mapping[str, tuple[Form, ...]] = {
    "gptq": (GPTQ_FORM,),
    "awq": (AWQ_FORM,),
    "compressed-tensors": (
        Form("weight_packed", (*_GROUPS, "weight_global_scale"), forms.packed),
        *SCALED,
    ),
    "fp8": SCALED,
    "fbgemm_fp8": SCALED,
    "modelopt": SCALED,
    "bitsandbytes": (
        Form("weight.absmax", (*_STATES, *forms.NF4_STATES), forms.four_bits),
        Form("SCB", ("weight", "weight_format"), forms.rows),
    ),
    "hqq": (Form("W_q", (*_HQQ, *_HQQ_NOTES, *_HQQ_FLAGS, *_HQQ_CHOICES), forms.hqq),),
    MLX: (Form("scales", ("weight", "biases"), forms.mlx),),
}
# Scales of activations and of the cache, which are computed in floating point here.
OF_ACTIVATIONS = re.compile(
    r"\.((input|output)_(scale|zero_point|global_scale)|[qkv]_(scale|zero_point))$"
)


def restored(rounding: Rounding, tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """All tensors of a file, with lazy weights in float32 under the names of unrounded ones.

    What a weight is stored as is its `LazyTensor.stored`, a `Stored`. Raises CheckpointError, which
    names the weight, where tensors are missing or contradict one another.
    """
    left, weights = dict(tensors), dict[str, Tensor]()
    for form in METHODS[rounding.method]:
        ending = f".{form.sign}"
        for name in [name for name in left if name.endswith(ending)]:
            module = name[: -len(ending)]
            ends = (form.sign, *form.parts)
            parts = {end: left.pop(f"{module}.{end}") for end in ends if f"{module}.{end}" in left}
            weights[f"{module}.weight"] = _restore(form, parts, rounding, module, path)
    if not weights:
        raise CheckpointError(
            f"{path} has no weight in a form of {rounding.title}, which {rounding.path} "
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
    twice = sorted(weights.keys() & left.keys())
    if twice:
        raise CheckpointError(f"{path}: {twice[0]} is there twice, rounded and not rounded")
    remark(
        f"{path}: {len(weights)} weights that {rounding.title} has rounded are floating point "
        "numbers again, of the same values; attendant export --precision decides how they are "
        "served"
    )
    return {**left, **weights}


def _restore(
    form: Form, parts: dict[str, Tensor], rounding: Rounding, module: str, path: Path
) -> Tensor:
    """The weight, lazy where the parts have values."""
    settings = {**rounding.settings, "of": rounding.of(module)}

    def restore(given: forms.Parts) -> Tensor:
        with _naming(rounding, module, path):
            forms.check_filled(given)
            return form.restore(given, settings).to(torch.float32).contiguous()

    like = restore({end: _without_values(end, part) for end, part in parts.items()})
    if any(part.is_meta for part in parts.values()):
        return like

    def read() -> Tensor:
        return restore({end: realised(part) for end, part in parts.items()})

    return LazyTensor.of(tuple(like.shape), read, Stored(form, parts, settings))


def _without_values(end: str, part: Tensor) -> Tensor:
    if f".{end}".endswith(forms.OF_SHAPES) or part.is_meta:
        return part
    return torch.empty(part.shape, dtype=part.dtype, device="meta")


@contextmanager
def _naming(rounding: Rounding, module: str, path: Path) -> Iterator[None]:
    """Turn what is wrong with the tensors of a weight into a `CheckpointError` that names it."""
    try:
        yield
    except KeyError as error:
        raise CheckpointError(
            f"{path}: {module}.{error.args[0]} is missing, which a weight of {rounding.title} has"
        ) from error
    except (ValueError, RuntimeError, IndexError, TypeError, ArithmeticError) as error:
        what = str(error).split("\n")[0]
        raise CheckpointError(
            f"{path}: the tensors of {module}, rounded by {rounding.title}, contradict one "
            f"another: {what}"
        ) from error
