"""A folder with rounded weights is imported as the folder of the numbers that they stand for."""

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.plan import recognise
from models.checkpoints.weights import headers_alone, read_weights
from tests.checkpoints.fields import network
from tests.checkpoints.forms.packing import Stored, fp8, int8
from tests.models.tiny import word_tokenizer


def to_mlx(weight: Tensor) -> Stored:
    """Eight numbers of four bits in a word, groups of the whole row."""
    low = weight.amin(1, keepdim=True)
    scale = (weight.amax(1, keepdim=True) - low) / 15
    codes = ((weight - low) / scale).round().to(torch.int64)
    words = sum(codes[:, place::8] << 4 * place for place in range(8))
    assert isinstance(words, Tensor)
    stored = {"weight": words.to(torch.uint32), "scales": scale, "biases": low}
    return stored, codes * scale + low


def packed(codes: Tensor, bits: int) -> Tensor:
    """Words of codes along the first axis, the lowest bits first."""
    places = range(32 // bits)
    words = sum(codes[place :: len(places)].long() << bits * place for place in places)
    assert isinstance(words, Tensor)
    return (words - (words >> 31 << 32)).to(torch.int32).contiguous()


def in_groups(weight: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes of four bits, scales and zero points of groups along the inputs, and their numbers."""
    size = 32 if weight.shape[1] % 32 == 0 else 8
    groups = weight.reshape(len(weight), -1, size)
    low, high = groups.amin(2), groups.amax(2)
    scales = (high - low) / 15
    zeros = (-low / scales).round().clamp(1, 15)
    codes = (groups / scales[..., None] + zeros[..., None]).round().clamp(0, 15)
    return codes.reshape(weight.shape), scales, zeros, torch.arange(weight.shape[1]) // size


def to_gptq(weight: Tensor) -> Stored:
    """Groups of 32, the inputs of which are in another order (`desc_act`)."""
    order = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(0))
    codes, scales, zeros, groups = in_groups(weight[:, order])
    back = torch.argsort(order)
    groups = groups[back]
    stored = {
        "qweight": packed(codes[:, back].mT, 4),
        "qzeros": packed(zeros - 1, 4).mT.contiguous(),
        "scales": scales.mT.contiguous(),
        "g_idx": groups.to(torch.int32),
    }
    return stored, (codes[:, back] - zeros[:, groups]) * scales[:, groups]


def to_awq(weight: Tensor) -> Stored:
    codes, scales, zeros, groups = in_groups(weight)
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])

    def words(numbers: Tensor) -> Tensor:
        return packed(numbers.reshape(-1, 8, numbers.shape[1])[:, order].flatten(0, 1), 4)

    stored = {
        "qweight": words(codes).mT.contiguous(),
        "qzeros": words(zeros).mT.contiguous(),
        "scales": scales.mT.contiguous(),
    }
    return stored, (codes - zeros[:, groups]) * scales[:, groups]


WAYS: Mapping[str, tuple[Callable[[Tensor], Stored], dict[str, Any]]] = {
    "fp8": (
        fp8,
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}},
    ),
    "compressed-tensors": (
        int8,
        {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": "int-quantized",
                "config_groups": {"group_0": {"weights": {"num_bits": 8}}},
            }
        },
    ),
    "gptq": (
        to_gptq,
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}},
    ),
    "awq": (to_awq, {"quantization_config": {"quant_method": "awq", "group_size": 32}}),
    "mlx": (to_mlx, {"quantization": {"bits": 4, "group_size": 64}}),
}


def folders(
    kind: str,
    way: str,
    folder: Path,
    classes: Any = transformers.AutoModelForSequenceClassification,
    **fields: int,
) -> tuple[Path, Path]:
    """The folder with rounded matrices of layers, and the one of their values."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    for name in ("rounded", "floats"):
        network(kind, classes, **fields).save_pretrained(folder / name)
        word_tokenizer().save(str(folder / name / "tokenizer.json"))
    to_stored, settings = WAYS[way]
    declared = copy.deepcopy(settings)
    rounded, values = load_file(folder / "floats" / "model.safetensors"), dict[str, Tensor]()
    for name in [name for name in rounded if "layers." in name or "layer." in name]:
        weight = rounded[name]
        if weight.ndim < 2 or weight.shape[1] % 8:
            continue
        stored, values[name] = to_stored(rounded.pop(name))
        module = name.removesuffix(".weight")
        rounded |= {f"{module}.{end}": tensor for end, tensor in stored.items()}
        if way == "mlx":  # has settings by weight
            declared["quantization"][module] = {"bits": 4, "group_size": weight.shape[1]}
    assert len(values) > 3
    kept = load_file(folder / "floats" / "model.safetensors")
    save_file(kept | values, folder / "floats" / "model.safetensors")
    write_parts(rounded, folder / "rounded")
    config = folder / "rounded" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | declared))
    return folder / "rounded", folder / "floats"


def write_parts(tensors: dict[str, Tensor], folder: Path) -> None:
    """The tensors in two files, so that those of one weight are in both."""
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {f"model-0000{k}-of-00002.safetensors": names[k - 1 :: 2] for k in (1, 2)}
    for part, inside in parts.items():
        save_file({name: tensors[name] for name in inside}, folder / part)
    weight_map = {name: part for part, inside in parts.items() for name in inside}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map})
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_rounded_weights_are_the_numbers_that_they_stand_for(
    kind: str, way: str, tmp_path: Path
) -> None:
    rounded, floats = folders(kind, way, tmp_path)
    with pytest.warns(UserWarning, match="has rounded are floating point numbers again"):
        found = load_checkpoint(rounded).model.state_dict()
    expected = load_checkpoint(floats).model.state_dict()
    assert found.keys() == expected.keys()
    assert recognise(rounded).num_weights > 0.9 * recognise(floats).num_weights
    with headers_alone():
        shapes = {name: tensor.shape for name, tensor in read_weights(rounded).items()}
        assert shapes == {name: tensor.shape for name, tensor in read_weights(floats).items()}
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-6, atol=1e-7)
