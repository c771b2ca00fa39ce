"""How a folder's `preprocessor_config.json` says that images are prepared.

Knows nothing about networks or pixels. Older files say less and name a feature extractor; what a
file leaves out is the default of the processor that it names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.checkpoints import file_names
from models.choices import MAX_RESIZED, RESAMPLINGS
from models.errors import CheckpointError, SettingError, shown
from models.json_files import check_number, check_only, check_whole, fields_of, read_object

PREPROCESSOR_FILE = file_names.PREPROCESSOR_FILE
RESCALE = 1.0 / 255.0
PIL_NUMBERS = dict(enumerate(("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")))
assert tuple(PIL_NUMBERS.values()) == RESAMPLINGS
_HALVES = [0.5, 0.5, 0.5]
_CLIP_MEAN, _CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
DEFAULTS: dict[str, dict[str, Any]] = {
    "ViT": {"resample": 2, "size": {"height": 224, "width": 224}, "do_center_crop": False},
    "DeiT": {
        "resample": 3,
        "size": {"height": 256, "width": 256},
        "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224},
    },
    "CLIP": {
        "resample": 3,
        "size": {"shortest_edge": 224},
        "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224},
        "image_mean": _CLIP_MEAN,
        "image_std": _CLIP_STD,
    },
}
COMMON = {
    "do_normalize": True,
    "do_rescale": True,
    "rescale_factor": RESCALE,
    "image_mean": _HALVES,
    "image_std": _HALVES,
}
ENDINGS = ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor")


@dataclass(frozen=True, slots=True)
class ImagePreparation:
    """The size of an image, how it gets it, and its normalisation, as `ViTConfig` has them."""

    height: int
    width: int
    resample: str
    resize: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def read_preparation(folder: Path, num_channels: int) -> ImagePreparation:
    """The preparation of images of a folder; raises `CheckpointError` for one that is not known."""
    path = folder / PREPROCESSOR_FILE
    with fields_of(path, read_object(path)) as stated:
        given = {name: value for name, value in stated.items() if value is not None}
        name = _processor(given, path)
        values = {**COMMON, **DEFAULTS[name], **given}
        if name == "CLIP" and isinstance(values["size"], int):  # in older files
            values["size"] = {"shortest_edge": values["size"]}
        check_only(values, {"do_resize": True, "do_pad": False}, path)
        return _preparation(values, num_channels)


def _processor(values: Mapping[str, Any], path: Path) -> str:
    """The processor that the file names, without the ending that says how it is implemented."""
    named = values.get("image_processor_type") or values.get("feature_extractor_type")
    for name in DEFAULTS:
        if named in {f"{name}{ending}" for ending in ENDINGS}:
            return name
    known = ", ".join(f"{name}{ENDINGS[0]}" for name in DEFAULTS)
    raise CheckpointError(
        f"{path}: image_processor_type is {shown(named)}, but must be one of {known}"
    )


def _preparation(values: Mapping[str, Any], num_channels: int) -> ImagePreparation:
    resize = _size(values["size"], "size")
    if values["do_center_crop"]:
        crop = _size(values["crop_size"], "crop_size")
        height, width = crop if len(crop) == 2 else (crop[0], crop[0])
    elif len(resize) == 2:
        (height, width), resize = resize, ()
    else:
        limit = "a height and a width where no middle is cut out"
        raise SettingError("size", values["size"], limit)
    if resize and any(
        pixels < least for pixels, least in zip(resize, _needed(resize, height, width), strict=True)
    ):
        raise SettingError("crop_size", f"{height} x {width}", f"at most the size, {resize}")
    scale = check_number("rescale_factor", values["rescale_factor"], 1e-9, 1e9)
    # Ours are of numbers from 0 to 1; what a file normalises may have another scale.
    by = 1.0 if not values["do_rescale"] else scale
    factor = 1.0 if by == RESCALE else RESCALE / by
    mean, std = [0.0], [1.0]
    if values["do_normalize"]:
        mean, std = values["image_mean"], values["image_std"]
    return ImagePreparation(
        height,
        width,
        PIL_NUMBERS[check_whole("resample", values["resample"], 0, 5)],
        resize,
        _per_channel("image_mean", mean, num_channels, factor, -1e9),
        _per_channel("image_std", std, num_channels, factor, 1e-9),
    )


def _needed(resize: tuple[int, ...], height: int, width: int) -> tuple[int, ...]:
    """The least that an image is to be resized to, so that its middle has enough pixels."""
    return (max(height, width),) if len(resize) == 1 else (height, width)


def _size(value: object, field: str) -> tuple[int, ...]:
    """A height and a width, or the shorter side alone; one number was once both."""
    sides = value if isinstance(value, dict) else {"height": value, "width": value}
    if sides.keys() == {"shortest_edge"}:
        return (check_whole(f"{field}.shortest_edge", sides["shortest_edge"], 1, MAX_RESIZED),)
    if sides.keys() != {"height", "width"}:
        raise SettingError(field, value, "height and width, or shortest_edge")
    return tuple(
        check_whole(f"{field}.{name}", sides[name], 1, MAX_RESIZED) for name in ("height", "width")
    )


def _per_channel(
    field: str, value: object, num_channels: int, factor: float, least: float
) -> tuple[float, ...]:
    """Numbers of a field that may have one for all channels."""
    numbers = value if isinstance(value, list) else [value]
    if len(numbers) == 1:
        numbers = numbers * num_channels
    if len(numbers) != num_channels:
        raise SettingError(field, value, f"{num_channels} numbers, one per channel")
    return tuple(check_number(field, number, least, 1e9) * factor for number in numbers)
