"""Rounded weights are the floating point numbers that their own programs make of them."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from models.checkpoints.lazy import realised
from models.checkpoints.rounded.declared import rounding_of
from models.checkpoints.rounded.kept import Kept
from models.checkpoints.rounded.methods import kept as kept_by
from models.checkpoints.rounded.methods import restored as restored_by
from models.checkpoints.weights import headers_alone, read_tensors
from models.errors import CheckpointError
from models.remarks import DataWarning

# Written by AutoGPTQ 0.7.1, AutoAWQ 0.2.9, MLX 0.32.4, bitsandbytes 0.50.2, HQQ 0.2.8,
# compressed-tensors 0.20.0 and torchao 0.18.0: one matrix in each of their forms, and what they
# make of it again.
STORED = Path(__file__).parent / "by_their_programs.safetensors"


@cache
def forms() -> Mapping[str, tuple[dict[str, Any], dict[str, Tensor]]]:
    with safe_open(STORED, framework="pt") as file:
        settings = {form: json.loads(text) for form, text in file.metadata().items()}
        tensors: dict[str, dict[str, Tensor]] = {form: {} for form in settings}
        for name in file.keys():  # noqa: SIM118 - not a mapping
            form, _, rest = name.partition("/")
            read = file.get_tensor(name)
            tensors[form][rest] = read.float() if read.is_floating_point() else read
    return {form: (settings[form], tensors[form]) for form in settings}


with safe_open(STORED, framework="pt") as opened:
    FORMS = sorted(opened.metadata())


def restored(
    settings: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path = STORED
) -> dict[str, Tensor]:
    rounding = rounding_of({"quantization_config": settings}, path)
    assert rounding is not None
    read = restored_by(rounding, tensors, path)
    return {name: realised(tensor) for name, tensor in read.items()}


@pytest.mark.filterwarnings("ignore::models.remarks.DataWarning")
@pytest.mark.parametrize("form", FORMS)
def test_a_weight_is_what_its_program_makes_of_it(form: str) -> None:
    settings, stored = forms()[form]
    tensors = {name: tensor for name, tensor in stored.items() if name != "expected"}
    found = restored(settings, tensors)
    assert found.keys() == {"m.weight"}
    expected = stored["expected"]
    # compressed-tensors computes with NVFP4's scale of a matrix in bfloat16, and files have it in
    # float32
    limit = 1e-5 if "nvfp4" in form else 2e-7
    assert float((found["m.weight"] - expected).abs().max()) <= limit
    assert float(expected.abs().max()) > 0.1


@pytest.mark.filterwarnings("ignore::models.remarks.DataWarning")
@pytest.mark.parametrize("form", FORMS)
def test_the_shape_of_a_weight_is_told_without_its_values(form: str, tmp_path: Path) -> None:
    settings, stored = forms()[form]
    with safe_open(STORED, framework="pt") as file:
        names = [name for name in stored if name != "expected"]
        save_file({name: file.get_tensor(f"{form}/{name}") for name in names}, tmp_path / "m")
    with headers_alone():
        found = restored(settings, read_tensors(tmp_path / "m"))
    assert found["m.weight"].is_meta
    assert found["m.weight"].shape == stored["expected"].shape


@pytest.mark.filterwarnings("ignore::models.remarks.DataWarning")
@pytest.mark.parametrize("form", FORMS)
def test_damaged_tensors_are_refused_by_the_name_of_their_weight(form: str) -> None:
    """Each tensor of a form is taken away, cut, or filled with other numbers: no other error."""
    settings, stored = forms()[form]
    tensors = {name: tensor for name, tensor in stored.items() if name != "expected"}
    for name, tensor in tensors.items():
        without = {other: value for other, value in tensors.items() if other != name}
        filled = torch.full_like(tensor, 127 if not tensor.is_floating_point() else float("nan"))
        for damaged in (
            without,
            {**without, name: tensor[:0]} if tensor.ndim else without,
            {**without, name: tensor.flatten()[:3]},
            {**without, name: filled},
        ):
            try:
                restored(settings, damaged)
            except CheckpointError as error:
                assert "m" in str(error)  # noqa: PT017 - an error is one of two right outcomes


def test_two_numbers_in_a_byte_of_torchao_are_those_of_its_layout() -> None:
    """The lower half first, from -8 to 7, and a number that is added to each group."""
    codes = torch.randint(-8, 8, (6, 64), generator=torch.Generator().manual_seed(0))
    scales, added = torch.rand(2, 6), torch.rand(2, 6)
    packed = (codes[:, 0::2] & 15 | (codes[:, 1::2] & 15) << 4).to(torch.uint8).view(torch.int8)
    stored = {"qdata": packed, "scale": scales, "zero_point": added}
    found = restored(
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}},
        {f"m._weight_{name}": tensor for name, tensor in stored.items()},
    )
    groups = torch.arange(64) // 32
    expected = codes * scales.mT[:, groups] + added.mT[:, groups]
    torch.testing.assert_close(found["m.weight"], expected)


METHODS_REFUSED = {
    "aqlm": {"quant_method": "aqlm"},
    "quark": {"quant_method": "quark"},
    "no method": {"bits": 4},
    "marlin": {"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"},
    "gemv": {"quant_method": "awq", "bits": 4, "version": "gemv"},
    "sparse": {"quant_method": "compressed-tensors", "format": "marlin-24"},
    "turned": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "transform_config": {"config_groups": {"u": {"type": "hadamard"}}},
    },
    "mx": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
}


@pytest.mark.parametrize("kind", METHODS_REFUSED)
def test_other_methods_are_refused_by_name(kind: str) -> None:
    with pytest.raises(CheckpointError, match="import the folder that it was rounded from"):
        rounding_of({"quantization_config": METHODS_REFUSED[kind]}, STORED)


def test_a_folder_that_declares_rounding_has_rounded_weights() -> None:
    with pytest.raises(CheckpointError, match="has no weight in a form of GPTQ"):
        restored({"quant_method": "gptq", "bits": 4}, {"m.weight": torch.ones(2, 2)})


def test_a_weight_that_is_there_twice_is_refused() -> None:
    settings, stored = forms()["awq"]
    with pytest.raises(CheckpointError, match="is there twice"):
        restored(settings, {**stored, "m.weight": torch.ones(2, 2)})


def test_scales_of_activations_and_of_the_cache_are_left_out_by_name() -> None:
    settings, stored = forms()["compressed-tensors-fp8-tensor"]
    tensors = {name: tensor for name, tensor in stored.items() if name != "expected"}
    beside = {f"m.{name}": torch.ones(1) for name in ("input_scale", "k_scale", "v_scale")}
    with pytest.warns(DataWarning) as remarks:
        found = restored(settings, {**tensors, **beside, "n.weight": torch.ones(2)})
    assert found.keys() == {"m.weight", "n.weight"}
    assert any("m.k_scale" in str(each.message) for each in remarks)


def kept_in_form(form: str) -> tuple[Tensor, Kept | None]:
    """The weight of a form as floats, and with its own numbers."""
    settings, stored = forms()[form]
    tensors = {name: tensor for name, tensor in stored.items() if name != "expected"}
    rounding = rounding_of({"quantization_config": settings}, STORED)
    assert rounding is not None
    found = [*kept_by(rounding, tensors, STORED, lambda _: 1.0), None]
    return realised(restored_by(rounding, tensors, STORED)["m.weight"]), found[0]
