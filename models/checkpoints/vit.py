"""How Hugging Face names what `models/networks/vit.py` calls by one name: ViT and DeiT.

Knows nothing about folders; a path is only for messages. Three things are stored in another form
than ours: the map of patches is a convolution, the positions and the class tokens have a dimension
of their own for rows, and a DeiT with a teacher has a classifier for each of its two class tokens,
whose logits are averaged.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoints.family import activation
from models.checkpoints.image_processors import ImagePreparation
from models.checkpoints.left_out import renamed
from models.checkpoints.ways_out import ELSEWHERE
from models.errors import CheckpointError, SettingError, shown
from models.networks.vit import ViTConfig

WITH_TEACHER = "ForImageClassificationWithTeacher"
SINGLE_LABEL = "single_label_classification"
ARCHITECTURES = {
    "vit": ("ViTForImageClassification",),
    "deit": ("DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"),
}
OUTSIDE_LAYERS = {
    "patches": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
    "output": "classifier",
}
CLASS_TOKENS = "embeddings.cls_token"
DISTILLATION = "embeddings.distillation_token"
POSITIONS = "embeddings.position_embeddings"
TEACHER_HEADS = ("cls_classifier", "distillation_classifier")
LAYER = {
    "attention_norm": "layernorm_before",
    "attention.query": "attention.attention.query",
    "attention.key": "attention.attention.key",
    "attention.value": "attention.attention.value",
    "attention.output": "attention.output.dense",
    "feed_forward_norm": "layernorm_after",
    "feed_forward.expand": "intermediate.dense",
    "feed_forward.contract": "output.dense",
}


def is_image_classifier(values: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a family here."""
    return values.get("model_type") in ARCHITECTURES


def check_vit(values: Mapping[str, Any], path: Path) -> None:
    """Refuse a folder that was not made to classify images."""
    known = ARCHITECTURES[values["model_type"]]
    architecture = str((values.get("architectures") or [""])[0])
    if architecture not in known:
        raise CheckpointError(
            f"{path}: architectures has {shown(architecture)}, but must be {' or '.join(known)}: "
            f"{ELSEWHERE}"
        )
    problem = values.get("problem_type") or SINGLE_LABEL
    if problem != SINGLE_LABEL:
        raise CheckpointError(
            f"{path}: problem_type is {shown(problem)}, but of images only {SINGLE_LABEL!r} is "
            "supported"
        )


def vit_config(values: Mapping[str, Any], preparation: ImagePreparation) -> ViTConfig:
    """The sizes; dropout is that of the residual stream."""
    height, width = _pair(values.get("image_size", 224), "image_size")
    if (height, width) != (preparation.height, preparation.width):
        limit = f"{preparation.height} x {preparation.width}, as images are prepared"
        raise SettingError("image_size", f"{height} x {width}", limit)
    patch_height, patch_width = _pair(values.get("patch_size", 16), "patch_size")
    if patch_height != patch_width:
        raise SettingError("patch_size", values["patch_size"], "one number: patches are squares")
    has_distillation = values["model_type"] == "deit"
    has_teacher = str((values.get("architectures") or [""])[0]).endswith(WITH_TEACHER)
    return ViTConfig(
        height=height,
        width=width,
        channels=int(values.get("num_channels", 3)),
        patch_size=patch_height,
        hidden_size=int(values["hidden_size"]),
        num_layers=int(values["num_hidden_layers"]),
        num_heads=int(values["num_attention_heads"]),
        intermediate_size=int(values["intermediate_size"]),
        layer_norm_eps=float(values.get("layer_norm_eps", 1e-12)),
        dropout=float(values.get("hidden_dropout_prob", 0.0)),
        activation=activation(values.get("hidden_act", "gelu")),
        mean=preparation.mean,
        std=preparation.std,
        resample=preparation.resample,
        resize=preparation.resize,
        num_class_tokens=2 if has_distillation else 1,
        num_classified=2 if has_teacher else 1,
    )


def vit_weights(
    tensors: Mapping[str, Tensor], values: Mapping[str, Any], config: ViTConfig, path: Path
) -> dict[str, Tensor]:
    """The tensors of a file in our layout, by the names that `name_in_vit` gives.

    One of an unexpected shape stays as it is, for the message that names it.
    """
    prefix = f"{values['model_type']}."
    found = renamed(tensors, lambda name: name.removeprefix(prefix), path)
    patches, positions = f"{OUTSIDE_LAYERS['patches']}.weight", found.get(POSITIONS)
    if patches in found:
        found[patches] = found[patches].flatten(1)
    if positions is not None and positions.shape[:1] == (1,):
        found[POSITIONS] = positions[0]
    if config.num_class_tokens == 2 and {CLASS_TOKENS, DISTILLATION} <= found.keys():
        both = [found[CLASS_TOKENS], found.pop(DISTILLATION)]
        found[CLASS_TOKENS] = torch.cat(both, dim=1)
    if config.num_classified == 2:
        found |= _averaged_heads(found)
    if not values.get("qkv_bias", True):
        found |= {name: torch.zeros(config.hidden_size) for name in _attention_biases(config)}
    return {name: tensor.contiguous() for name, tensor in found.items()}


def name_in_vit(name: str) -> str:
    """Translate our `name` of a weight into the file's, without its prefix."""
    if name == "class_token":
        return CLASS_TOKENS
    if name == "positions.table.weight":
        return POSITIONS
    module, _, kind = name.rpartition(".")
    if module in OUTSIDE_LAYERS:
        return f"{OUTSIDE_LAYERS[module]}.{kind}"
    _, index, rest = module.split(".", maxsplit=2)
    return f"encoder.layer.{index}.{LAYER[rest]}.{kind}"


def _attention_biases(config: ViTConfig) -> list[str]:
    return [
        name_in_vit(f"layers.{index}.attention.{part}.bias")
        for index in range(config.num_layers)
        for part in ("query", "key", "value")
    ]


def _averaged_heads(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """One classifier of both class tokens, side by side, in place of two that are averaged."""
    names = [f"{head}.{kind}" for kind in ("weight", "bias") for head in TEACHER_HEADS]
    if not found.keys() >= set(names):
        return {}
    heads = [found.pop(name) for name in names]
    output = OUTSIDE_LAYERS["output"]
    return {
        f"{output}.weight": torch.cat(heads[:2], dim=1) / 2.0,
        f"{output}.bias": (heads[2] + heads[3]) / 2.0,
    }


def _pair(value: object, field: str) -> tuple[int, int]:
    """Height and width of a field that may be one number for both."""
    if isinstance(value, list) and len(value) == 2:
        return int(value[0]), int(value[1])
    if isinstance(value, int):
        return value, value
    raise SettingError(field, value, "one number, or a height and a width")
