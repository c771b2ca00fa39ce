"""The preparation of an image before it is computed, as a manifest states it.

Knows nothing of files or of how an image is decoded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from service.errors import LoadError

Resampling = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]  # Pillow's
MAX_RESIZED = 4_096  # pixels a side


@dataclass(frozen=True, slots=True)
class ImageInput:
    """The size of an image, how it gets it, and the normalisation of numbers from 0 to 1.

    An image is resized to the height and width that `resize` has, or to a shorter side of that
    many pixels where it has one number; then `height` x `width` are cut from the middle. Where
    `resize` is empty, it is resized to `height` x `width`.
    """

    height: int  # pixels, as the width
    width: int
    channels: int  # 1 grey; 3 red, green and blue
    mean: tuple[float, ...]  # per channel: what is taken away
    std: tuple[float, ...]  # per channel: what the difference is divided by
    resample: Resampling = "bilinear"
    resize: tuple[int, ...] = ()  # pixels

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise LoadError(f"manifest.json: image.{name} is {value!r}, expected 1 or more")
        if self.channels not in (1, 3):
            raise LoadError(f"manifest.json: image.channels is {self.channels!r}, expected 1 or 3")
        if not len(self.mean) == len(self.std) == self.channels or min(self.std) <= 0:
            raise LoadError(
                f"manifest.json: image.mean is {self.mean} and image.std {self.std}, expected "
                f"{self.channels} numbers each, those of std above 0"
            )
        if self.resample not in get_args(Resampling):
            raise LoadError(
                f"manifest.json: image.resample is {self.resample!r}, expected one of "
                f"{get_args(Resampling)}"
            )
        self._check_resize()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Raises `LoadError` for a wrong value, and `TypeError` for a field that is not known."""
        lists = {name: tuple(values.get(name, ())) for name in ("mean", "std", "resize")}
        return cls(**{**values, **lists})

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """The height and width that an image of this size gets before its middle is cut out.

        The longer side is rounded down, as transformers does.
        """
        if len(self.resize) == 1:
            (shorter,) = self.resize
            if height <= width:
                return shorter, shorter * width // height
            return shorter * height // width, shorter
        new_height, new_width = self.resize or (self.height, self.width)
        return new_height, new_width

    def _check_resize(self) -> None:
        """Raise `LoadError` unless every image, once resized, has the middle that is cut out."""
        size = (self.height, self.width)
        least = (max(size),) if len(self.resize) == 1 else size
        if len(self.resize) > 2 or any(
            not isinstance(pixels, int) or not low <= pixels <= MAX_RESIZED
            for pixels, low in zip(self.resize, least, strict=False)
        ):
            raise LoadError(
                f"manifest.json: image.resize is {self.resize}, expected a height and a width, or "
                f"one number for the shorter side, at least the image's and at most {MAX_RESIZED}"
            )
