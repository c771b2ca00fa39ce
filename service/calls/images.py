"""Calls about images: their classes, and the attention between their patches."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from service.calls.answers import Answered, AttentionMatrix, LabelScore
from service.calls.record import U32, Call, said


class ClassifyImage(Call, frozen=True):
    """Images whose class is asked for."""

    images: Annotated[Sequence[bytes], said("Files of images.", counted=True)] = ()
    top_k: Annotated[int, said("Labels of each image; 0 stands for 1.", low=0, high=U32)] = 0
    all_scores: Annotated[bool, said("Every label; not together with top_k.")] = False


class AttendImage(Call, frozen=True):
    """An image whose attention is asked for."""

    image: Annotated[bytes, said("A file of an image.")] = b""
    layers: Annotated[Sequence[int], said("Layers from 0; none: all.")] = ()
    heads: Annotated[Sequence[int], said("Heads from 0; none: all.")] = ()


class ImageClassification(msgspec.Struct, frozen=True):
    """The labels of one image, best first, and its size in pixels."""

    labels: Sequence[LabelScore]
    width: int
    height: int


class ImageClassifications(Answered, frozen=True, kw_only=True):
    """The labels of all images, in their order."""

    results: Sequence[ImageClassification]


class ImageAttention(Answered, frozen=True, kw_only=True):
    """The weights between the patches of an image, row by row, and its labels."""

    labels: Sequence[LabelScore]
    patch_rows: int
    patch_columns: int
    matrices: Sequence[AttentionMatrix]
    width: int
    height: int
