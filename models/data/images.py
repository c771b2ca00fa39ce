"""Labelled images to learn from: scikit-learn's digits, or an .npz file; and batches of them.

Knows nothing about networks. Pixels are kept as whole numbers from 0 to 255, as image files have
them: what is learnt from and what a server decodes are the same numbers.
"""
# ruff: noqa: N803 - suffixes are array layouts: N images, B of them, C channels, H and W pixels

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional as F

from models.data.datasets import Dataset, Example, Examples, split
from models.errors import DatasetError

CHANNELS = (1, 3)  # grey; red, green and blue
DIGITS_INK = 16  # the largest value of scikit-learn's pixels
EVEN_GROUND, EVEN_SHARE = 0.2, 0.7  # of drawings: most of their edges are about as bright
MIN_STD = 1e-3  # of a channel that is the same everywhere


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImage:
    """One image, uint8 [C, H, W], and its label."""

    label: str
    pixels: Tensor

    @property
    def content(self) -> tuple[object, ...]:
        return self.label, tuple(self.pixels.shape), self.pixels.numpy().tobytes()


@dataclass(frozen=True, slots=True)
class LabelledImages(Examples[LabelledImage]):
    """Images of one size."""

    def labels(self) -> tuple[str, ...]:
        """Each label once, sorted."""
        return tuple(sorted({example.label for example in self.examples}))

    def check(self, held_out: Sequence["LabelledImages"]) -> None:
        """Split off from this, `held_out` can be judged: every label keeps its share."""
        labels = self.labels()
        if len(labels) < 2:
            raise DatasetError(f"{self.name} has only the label {labels[0]}, 2 are needed")
        assert all(set(part.labels()) <= set(labels) for part in held_out)

    def split(self, fractions: Sequence[float], seed: int) -> "list[LabelledImages]":
        """The remaining rows, then one held-out part per fraction."""
        numbered = enumerate(self.examples)
        rows = Dataset(self.name, tuple(Example(i, image.label, "") for i, image in numbered))
        parts = split(rows, fractions, seed)
        return [self.at(row.line for row in part.examples) for part in parts]

    def pixels(self) -> Tensor:
        """Uint8 [N, C, H, W]."""
        return torch.stack([image.pixels for image in self.examples])

    def polarity(self) -> str:
        """Whether drawings are light on dark, in words; empty for mixed backgrounds."""
        edges = torch.cat([_edge(image.pixels) for image in self.examples]).double() / 255.0
        ground = edges.median().item()
        is_even = ((edges - ground).abs() < EVEN_GROUND).double().mean().item() > EVEN_SHARE
        if not is_even or EVEN_GROUND < ground < 1.0 - EVEN_GROUND:
            return ""
        return "light on dark" if ground < 0.5 else "dark on light"

    def mean_and_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of each channel, with pixels from 0 to 1."""
        values = self.pixels().double().div(255.0).transpose(0, 1).flatten(1)
        std = values.std(dim=1, correction=0).clamp(min=MIN_STD)
        return tuple(values.mean(dim=1).tolist()), tuple(std.tolist())


@dataclass(frozen=True, slots=True)
class ImageRows:
    """Images as a network takes them, normalised; in training moved about at random."""

    pixels: Tensor  # uint8 [N, C, H, W]
    targets: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    max_shift: int = 0  # pixels, down and across

    def __len__(self) -> int:
        return len(self.targets)

    def lengths(self) -> list[int]:
        """All images have as many patches."""
        return [1] * len(self)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Float32 [B, C, H, W], and the targets [B]."""
        pixels = self.pixels[list(indices)]
        if self.max_shift:
            pixels = shifted(pixels, self.max_shift)
        targets = torch.tensor([self.targets[i] for i in indices])
        return normalised(pixels, self.mean, self.std), targets


def _edge(pixels_CHW: Tensor) -> Tensor:
    """The outermost pixels of an image."""
    sides = pixels_CHW[:, 0], pixels_CHW[:, -1], pixels_CHW[:, :, 0], pixels_CHW[:, :, -1]
    return torch.cat([side.flatten() for side in sides])


def normalised(pixels_BCHW: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Float32: (pixel / 255 - mean) / std, channel by channel."""
    shape = (-1, 1, 1)
    values = pixels_BCHW.float().div(255.0) - torch.tensor(mean).reshape(shape)
    return values / torch.tensor(std).reshape(shape)


def shifted(pixels_BCHW: Tensor, max_shift: int) -> Tensor:
    """Each image moved by a random number of pixels down and across; its edge is repeated."""
    height, width = pixels_BCHW.shape[2:]
    padded = F.pad(pixels_BCHW.float(), (max_shift,) * 4, mode="replicate").to(pixels_BCHW.dtype)
    moves = torch.randint(0, 2 * max_shift + 1, (len(pixels_BCHW), 2)).tolist()
    moved = [
        image[:, down : down + height, across : across + width]
        for image, (down, across) in zip(padded, moves, strict=True)
    ]
    return torch.stack(moved)


def digits() -> LabelledImages:
    """1,797 handwritten digits of 8 x 8 pixels, white on black, which come with scikit-learn."""
    found = load_digits()
    pixels = np.rint(found.images * (255 / DIGITS_INK)).astype(np.uint8)
    return _labelled("digits", pixels[:, None], found.target)


def read_images(path: Path) -> LabelledImages:
    """An .npz of `images`, uint8 [N, H, W] or [N, H, W, C], and as many `labels`."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    except FileNotFoundError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise DatasetError(f"{path}: expected an .npz of images and labels: {error}") from error
    if images.ndim == 3:
        images = images[..., None]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in CHANNELS:
        raise DatasetError(
            f"{path}: images are {images.dtype} {list(images.shape)}, expected uint8 [N, H, W] or "
            f"[N, H, W, C] with {' or '.join(map(str, CHANNELS))} channels"
        )
    if not images.size or labels.shape != images.shape[:1] or labels.dtype.kind not in "iuU":
        raise DatasetError(
            f"{path}: labels are {labels.dtype} {list(labels.shape)}, expected whole numbers or "
            f"texts, one for each of {len(images)} images"
        )
    return _labelled(path.name, np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels)


def _labelled(name: str, pixels_NCHW: np.ndarray, labels_N: np.ndarray) -> LabelledImages:
    pairs = zip(labels_N.tolist(), torch.from_numpy(pixels_NCHW), strict=True)
    return LabelledImages(name, tuple(LabelledImage(str(label), image) for label, image in pairs))
