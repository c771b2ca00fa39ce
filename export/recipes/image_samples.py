"""Images that stand for those to come: int8 finds its scales on some, and is checked on others.

No image comes with the project that would be like a model's own, so they are files of a folder.
"""

# ruff: noqa: N806, N815 - suffixes are array layouts: N images, C channels, H and W pixels

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from export.errors import ExportError
from export.precision.samples import CHECKED_SHARE, MIN_TEXTS
from service.contract.image_input import ImageInput
from service.errors import InvalidArgument
from service.runtime.images import ImageLimits, decode_images

NUM_IMAGES = 256  # a quarter is compared: one of these 64 is 1.6 per cent
SUFFIXES = (".png", ".jpg", ".jpeg")
LIMITS = ImageLimits(max_bytes=2**24, max_pixels=2**24)  # those of a server by default


@dataclass(frozen=True, slots=True)
class SamplePixels:
    """Images as the network takes them: float32 [N, C, H, W]."""

    calibration_NCHW: np.ndarray
    checked_NCHW: np.ndarray

    @property
    def batches(self) -> Iterator[np.ndarray]:
        """Batches to calibrate on, one by one."""
        return (image_CHW[None] for image_CHW in self.calibration_NCHW)


def read_images(folder: Path) -> tuple[bytes, ...]:
    """A random choice of a folder's PNG and JPEG files, the same ones each time.

    Raises `ExportError` where there is no folder, or no such file in it or below.
    """
    if not folder.is_dir():
        raise ExportError(
            f"{folder} is no folder: a model that reads images is calibrated on a folder of PNG "
            "and JPEG files"
        )
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise ExportError(f"{folder} has no file that ends with {', '.join(SUFFIXES)}")
    order = np.random.default_rng(0).permutation(len(paths))[:NUM_IMAGES]
    return tuple(paths[index].read_bytes() for index in order)


def sample_pixels(images: Sequence[bytes], image_input: ImageInput) -> SamplePixels:
    """The images as the server prepares them, or `ExportError`."""
    if len(images) < MIN_TEXTS:
        raise ExportError(
            f"there are {len(images)} images to calibrate on, at least {MIN_TEXTS} are needed"
        )
    try:  # one by one, as all together may have more pixels than a request
        decoded = [decode_images([image], image_input, LIMITS) for image in images]
    except InvalidArgument as error:
        raise ExportError(f"calibration: {error}") from error
    pixels_NCHW = np.concatenate([each.pixel_values for each in decoded])
    is_checked = np.arange(len(images)) % CHECKED_SHARE == 0
    return SamplePixels(pixels_NCHW[~is_checked], pixels_NCHW[is_checked])
