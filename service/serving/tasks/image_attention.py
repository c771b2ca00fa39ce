"""The attention weights between the patches of an image, by layer and head, and its classes.

An image is computed alone, as a text of the task attention is. The class token goes before the
patches, which are counted row by row from the top left.
"""

import math
from dataclasses import replace

from service.calls.images import AttendImage
from service.contract.manifest import Manifest
from service.contract.tensors import Signature, TensorSpec
from service.serving.tasks.attention import chosen_matrices, matrices_of
from service.serving.tasks.image_classification import (
    ImageAnswer,
    ImageTaskModel,
    image_signature,
)
from service.serving.tasks.task import FP32, Ask, Fields, Method, Task, ranked, softmax


def _signature(manifest: Manifest) -> Signature:
    """The tensors as the graph has them."""
    signature, num_tokens = image_signature(manifest), manifest.max_tokens
    dims = (manifest.num_layers, manifest.num_heads, num_tokens, num_tokens)
    attentions = TensorSpec("attentions", FP32, dims)
    return replace(signature, outputs=(*signature.outputs, attentions))


def _grid(manifest: Manifest) -> tuple[int, int]:
    """Rows and columns of the square patches that are as many as tokens beside the class token."""
    image = manifest.image
    assert image is not None, "the manifest has checked it"
    patch_size = math.isqrt(image.height * image.width // (manifest.max_tokens - 1))
    return image.height // patch_size, image.width // patch_size


def _ask(call: AttendImage, model: ImageTaskModel) -> Ask:
    manifest = model.manifest
    matrices = chosen_matrices(manifest, call.layers, call.heads)
    rows, columns = _grid(manifest)

    def answer(reply: ImageAnswer) -> Fields:
        ((width, height),) = reply.sizes
        (labels,) = ranked(softmax(reply.outputs["logits"]), manifest.labels, len(manifest.labels))
        return {
            "labels": labels,
            "patch_rows": rows,
            "patch_columns": columns,
            "matrices": matrices_of(matrices, reply.outputs["attentions"][0]),
            "width": width,
            "height": height,
        }

    paths = {"images[]": "image"}
    return Ask([call.image], answer, model.decoded_bytes, paths=lambda: paths)


IMAGE_ATTENTION = Task(
    name="image-attention", verb="show its attention to images", signature=_signature
)
METHODS = (Method(IMAGE_ATTENTION, AttendImage, _ask),)
