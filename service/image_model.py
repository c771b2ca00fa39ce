"""An image classifier: tensors as its graph takes them, or image files.

Files are decoded on a worker thread, whatever their size: a small one may hold many pixels. All
methods run on the event loop.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.batching import Size
from service.engine import BatchEngine
from service.errors import DeadlineExceeded, LoadError
from service.images import ImageLimits, check_sizes, decode_images
from service.manifest import Manifest
from service.metrics import ModelMetrics
from service.models import Caller, TensorModel, first_outputs
from service.request import Item, Timings
from service.response_cache import LoadCache
from service.signature import Signature
from service.tasks import text_signature
from service.tokenizing import Tokenizing


@dataclass(frozen=True, slots=True)
class ImageReply:
    """Logits [images, labels], and each image's width and height as it came."""

    logits: np.ndarray
    sizes: list[tuple[int, int]]
    timings: Timings


class ImageModel(TensorModel):
    """A tensor model that takes image files too."""

    def __init__(
        self,
        version: int,
        config: ModelConfig,
        engine: BatchEngine,
        metrics: ModelMetrics,
        manifest: Manifest,
        limits: ImageLimits,
        executor: Executor,
        cache: LoadCache | None = None,
    ) -> None:
        assert manifest.image is not None, "the manifest has checked it"
        super().__init__(version, config, engine, metrics, cache)
        self.manifest = manifest
        self._image = manifest.image
        self._limits = limits
        self._worker = Tokenizing(executor)

    @property
    def decoded_bytes(self) -> int:
        """What an image takes once it is as the graph takes it: a small file may become much."""
        return 4 * self._image.channels * self._image.height * self._image.width  # float32

    async def classify(self, files: Sequence[bytes], caller: Caller) -> ImageReply:
        """Decode files and run them, each as an item of its own."""
        is_left, deadline_s = False, caller.deadline_s

        def check() -> None:
            if is_left or (deadline_s is not None and time.monotonic() > deadline_s):
                raise DeadlineExceeded("the deadline passed while images were decoded")

        with self.counted_failures(caller.received_s):
            size = Size(len(files), len(files))
            self._batches.check_room(caller.priority, deadline_s, size)  # before any work: cheaply
            check_sizes(files, self._limits)
            try:
                decoded = await self._worker.run_elsewhere(
                    lambda: decode_images(files, self._image, self._limits, check)
                )
            finally:
                is_left = True
            request = caller.new_request()
            (spec,) = self.signature.inputs
            request.items = tuple(
                Item(request, {spec.name: pixels[None]}, 1, 1, (pixels.shape,))
                for pixels in decoded.pixel_values
            )
            logits = await self._run(request, "", first_outputs)
        return ImageReply(logits, decoded.sizes, request.timings)


def check_image_graph(graph: Signature, manifest: Manifest) -> None:
    """Raise `LoadError` unless the graph takes and gives what the manifest promises."""
    promised = text_signature(manifest)
    for side, found, wanted in (
        ("input", graph.inputs, promised.inputs),
        ("output", graph.outputs, promised.outputs),
    ):
        (spec,) = wanted
        dims = [tensor.dims for tensor in found if tensor.name == spec.name]
        if len(found) != 1 or dims != [(-1, *spec.dims)]:
            raise LoadError(
                f"task {manifest.task} needs one {side} '{spec.name}' of shape "
                f"{[-1, *spec.dims]}, the graph has "
                f"{ {tensor.name: tensor.dims for tensor in found} }"
            )
