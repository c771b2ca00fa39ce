"""The classes of images; `serving/image_model.py` decodes and runs them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from service.calls.images import ClassifyImage, ImageClassification
from service.contract.manifest import Manifest
from service.contract.tensors import Signature, TensorSpec
from service.serving.tasks.task import (
    FP32,
    Ask,
    Fields,
    Method,
    Task,
    TaskModel,
    label_count,
    ranked,
    softmax,
)


class ImageTaskModel(TaskModel, Protocol):
    """The parts of a model that the task needs."""

    @property
    def decoded_bytes(self) -> int: ...


class ImageAnswer(Protocol):
    """The parts of a model's reply that the tasks of images need."""

    @property
    def outputs(self) -> Mapping[str, np.ndarray]: ...

    @property
    def sizes(self) -> Sequence[tuple[int, int]]: ...


def image_signature(manifest: Manifest) -> Signature:
    """The tensors as the graph has them."""
    image = manifest.image
    assert image is not None, "the manifest has checked it"
    pixels = TensorSpec("pixel_values", FP32, (image.channels, image.height, image.width))
    return Signature((pixels,), (TensorSpec("logits", FP32, (len(manifest.labels),)),))


def _ask(call: ClassifyImage, model: ImageTaskModel) -> Ask:
    files, labels = call.images, model.manifest.labels
    count = label_count(call.top_k, len(labels), all_scores=call.all_scores)

    def answer(reply: ImageAnswer) -> Fields:
        pairs = zip(
            reply.sizes, ranked(softmax(reply.outputs["logits"]), labels, count), strict=True
        )
        return {
            "results": [ImageClassification(best, width, height) for (width, height), best in pairs]
        }

    return Ask(files, answer, len(files) * model.decoded_bytes)


IMAGE_CLASSIFICATION = Task(
    name="image-classification", verb="classify images", signature=image_signature
)
METHODS = (Method(IMAGE_CLASSIFICATION, ClassifyImage, _ask),)
