"""How an embedder's vectors are made use of, as a manifest states it.

Prompts are put in front of texts; a vector may be cut to the widths that it was trained for; its
values are written in whole numbers by the ranges that were measured at export. Pure.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: N texts, D values

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np

from service.errors import LoadError

Similarity = Literal["", "cosine", "dot", "euclidean", "manhattan"]
MAX_PROMPTS = 1_024
SMALLEST_LENGTH = 1e-12  # of a vector that has a direction
MAX_PROMPT_CHARACTERS = 4_096  # each text of a request has it in front


@dataclass(frozen=True, slots=True)
class EmbedderUse:
    """Prompts, widths and ranges of an embedder; an older manifest has none of them."""

    prompts: dict[str, str] = field(default_factory=dict)  # put in front of texts, by name
    default_prompt: str = ""  # the name of the one for requests that name none
    dimensions: tuple[int, ...] = ()  # values that a vector may be cut to, the most first
    is_normalized: bool = False  # vectors have length 1, and again once they are cut
    similarity: Similarity = ""  # the measure that the publisher declares
    # By the width in digits: the least and the greatest of each value, float32 [2, width], base64.
    ranges: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _are_texts(self.prompts) or len(self.prompts) > MAX_PROMPTS:
            raise LoadError(
                f"manifest.json: embedder.prompts is no object of at most {MAX_PROMPTS} texts"
            )
        for name, text in self.prompts.items():
            if len(text) > MAX_PROMPT_CHARACTERS:
                raise LoadError(
                    f"manifest.json: embedder.prompts.{name} has {len(text)} characters, expected "
                    f"at most {MAX_PROMPT_CHARACTERS}"
                )
        if self.default_prompt and self.default_prompt not in self.prompts:
            raise LoadError(
                f"manifest.json: embedder.default_prompt is {self.default_prompt!r}, expected one "
                f"of {', '.join(self.prompts) or 'no prompts'}"
            )
        if not all(isinstance(width, int) and width > 0 for width in self.dimensions):
            raise LoadError(
                f"manifest.json: embedder.dimensions is {self.dimensions!r}, expected whole "
                "numbers above 0"
            )
        if self.similarity not in get_args(Similarity):
            raise LoadError(
                f"manifest.json: embedder.similarity is {self.similarity!r}, expected one of "
                f"{get_args(Similarity)}"
            )
        if not _are_texts(self.ranges):
            raise LoadError("manifest.json: embedder.ranges is no object of texts")
        for width in self.ranges:
            self.range_of(int(width) if width.isdecimal() else 0)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Raises `LoadError` for a wrong value, and `TypeError` for a field that is not known."""
        return cls(**{**values, "dimensions": tuple(values.get("dimensions", ()))})

    def range_of(self, width: int) -> np.ndarray | None:
        """The least and greatest values of vectors of that width, float32 [2, width]; or None."""
        written = self.ranges.get(str(width))
        if written is None:
            return None
        try:
            values = np.frombuffer(b64decode(written, validate=True), "<f4").reshape(2, width)
        except ValueError as error:
            raise LoadError(
                f"manifest.json: embedder.ranges.{width} is not float32 [2, {width}] in base64: "
                f"{error}"
            ) from error
        if not (np.isfinite(values).all() and (values[0] <= values[1]).all()):
            raise LoadError(f"manifest.json: embedder.ranges.{width} has a least above a greatest")
        return values

    def cut(self, vectors_ND: np.ndarray, width: int) -> np.ndarray:
        """The first `width` values of each, of length 1 again where the model normalises."""
        if width == vectors_ND.shape[1]:
            return vectors_ND
        shorter = vectors_ND[:, :width]
        return unit(shorter) if self.is_normalized else shorter


def unit(vectors_ND: np.ndarray) -> np.ndarray:
    """[N, D] of length 1; a vector without direction stays what it is."""
    lengths_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    units_ND: np.ndarray = vectors_ND / np.maximum(lengths_N1, SMALLEST_LENGTH)
    return units_ND


def written_range(vectors: np.ndarray) -> str:
    """The least and greatest of each value of vectors [N, width], as `ranges` has them."""
    least_and_greatest = np.stack([vectors.min(axis=0), vectors.max(axis=0)])
    return b64encode(least_and_greatest.astype("<f4").tobytes()).decode()


def _are_texts(values: object) -> bool:
    return isinstance(values, dict) and all(isinstance(each, str) for each in values.values())
