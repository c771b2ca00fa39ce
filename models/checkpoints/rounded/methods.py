"""Weights of the ways of rounding that can be read, in float32 again.

`METHODS` has the forms in which each program stores a weight; `restored` takes them out of all the
tensors of a folder.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from models.checkpoints.lazy import LazyTensor, realised
from models.checkpoints.left_out import named
from models.checkpoints.rounded import forms
from models.checkpoints.rounded.declared import MLX, Rounding, Settings
from models.checkpoints.rounded.kept import Kept, kept_of
from models.checkpoints.rounded.stored import Stored
from models.checkpoints.ways_out import NOT_ROUNDED
from models.errors import CheckpointError
from models.remarks import remark


@dataclass(frozen=True, slots=True)
class Form:
    """One way to store a weight: the tensor that tells it, and those that belong to it."""

    sign: str  # the end of a name
    parts: tuple[str, ...]
    read: Callable[[forms.Parts, Settings], Stored | Tensor]


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
    "torchao": (Form("_weight_qdata", ("_weight_scale", "_weight_zero_point"), forms.torchao),),
    MLX: (Form("scales", ("weight", "biases"), forms.mlx),),
}
# Scales of activations and of the cache, which are computed in floating point here.
OF_ACTIVATIONS = re.compile(
    r"\.((input|output)_(scale|zero_point|global_scale)|[qkv]_(scale|zero_point))$"
)


Weight = TypeVar("Weight")


@dataclass(frozen=True, slots=True)
class _Rounded:
    """One weight of a folder."""

    form: Form
    parts: forms.Parts
    rounding: Rounding
    module: str
    path: Path

    def read(self, change: Callable[[Stored | Tensor], Weight]) -> Weight:
        """Result of `change`, or the `CheckpointError` that names the weight."""
        title, module = self.rounding.title, self.module
        settings = {**self.rounding.settings, "of": self.rounding.of(module)}
        parts = {end: realised(part) for end, part in self.parts.items()}
        try:
            forms.check_filled(parts)
            return change(self.form.read(parts, settings))
        except KeyError as error:
            raise CheckpointError(
                f"{self.path}: {module}.{error.args[0]} is missing, which a weight of {title} has"
            ) from error
        except (ValueError, RuntimeError, IndexError, TypeError, ArithmeticError) as error:
            what = str(error).split("\n")[0]
            raise CheckpointError(
                f"{self.path}: the tensors of {module}, rounded by {title}, contradict one "
                f"another: {what}"
            ) from error


def restored(rounding: Rounding, tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """All tensors of a file, with lazy weights in float32 under the names of unrounded ones.

    Raises CheckpointError, which names the weight, where tensors are missing or contradict one
    another.
    """
    weights, left = _each(rounding, tensors, path, _lazy)
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


def kept(
    rounding: Rounding, tensors: Mapping[str, Tensor], path: Path, factor: Callable[[str], float]
) -> Iterator[Kept]:
    """Weights that the CPU computes with as they are stored, each times its factor by its name.

    Raises CheckpointError as `restored` does.
    """
    weights, _ = _each(rounding, tensors, path, lambda weight: weight)
    for name, weight in weights.items():

        def made(stored: Stored | Tensor, name: str = name) -> Kept | None:
            if not isinstance(stored, Stored):
                return None
            title = f"{rounding.title}, {stored.bits} bits"
            return kept_of(replace(stored, factor=factor(name)), title)

        found = weight.read(made)
        if found is not None:
            yield found


def _floats(stored: Stored | Tensor) -> Tensor:
    floats = stored.floats() if isinstance(stored, Stored) else stored
    return floats.to(torch.float32).contiguous()


def _lazy(weight: "_Rounded") -> Tensor:
    """The weight in float32, read when it is needed where its parts have values."""
    parts = {end: _without_values(end, part) for end, part in weight.parts.items()}
    like = replace(weight, parts=parts).read(_floats)
    if any(part.is_meta for part in weight.parts.values()):
        return like
    return LazyTensor.of(tuple(like.shape), lambda: weight.read(_floats))


def _without_values(end: str, part: Tensor) -> Tensor:
    if f".{end}".endswith(forms.OF_SHAPES) or part.is_meta:
        return part
    return torch.empty(part.shape, dtype=part.dtype, device="meta")


def _each(
    rounding: Rounding,
    tensors: Mapping[str, Tensor],
    path: Path,
    made: Callable[[_Rounded], Weight],
) -> tuple[dict[str, Weight], dict[str, Tensor]]:
    """Results of `made` for all rounded weights, by name, and the tensors of no such weight."""
    left, weights = dict(tensors), dict[str, Weight]()
    for form in METHODS[rounding.method]:
        ending = f".{form.sign}"
        for name in [name for name in left if name.endswith(ending)]:
            module = name[: -len(ending)]
            ends = (form.sign, *form.parts)
            parts = {end: left.pop(f"{module}.{end}") for end in ends if f"{module}.{end}" in left}
            weights[f"{module}.weight"] = made(_Rounded(form, parts, rounding, module, path))
    if not weights:
        raise CheckpointError(
            f"{path} has no weight in a form of {rounding.title}, which {rounding.path} "
            f"declares: {NOT_ROUNDED}"
        )
    return weights, left
