"""An image classifier: tensors as its graph takes them, or image files.

Files are decoded on a worker thread, whatever their size: a small one may hold many pixels. All
methods run on the event loop.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from service.batching.engine import BatchEngine
from service.batching.queue import Size
from service.batching.request import Item
from service.calls.models import ModelFacts
from service.contract.interface import ModelInterface
from service.errors import DeadlineExceeded
from service.records import Timings
from service.runtime.images import ImageLimits, check_sizes, decode_images
from service.serving.facts import facts_with
from service.serving.model import Caller, Host
from service.serving.tasks.task import Fields, Reading
from service.serving.tensor_model import TensorModel
from service.serving.workers import Tokenizing

# Of a reply that is read on the event loop: a value takes about 50 ns in a message.
INLINE_VALUES = 16_384
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ImageReply:
    """The graph's outputs by name, a row for each image, and each one's size as it came."""

    outputs: dict[str, np.ndarray]
    sizes: list[tuple[int, int]]
    timings: Timings

    @property
    def totals(self) -> Fields:
        """The fields of an answer that are of all images together: none."""
        return {}


class ImageModel(TensorModel):
    """A tensor model that takes image files too."""

    takes = "images"

    def __init__(self, host: Host, interface: ModelInterface, engine: BatchEngine) -> None:
        manifest, settings = interface.manifest, host.settings
        assert manifest is not None, "an image model has one"
        assert manifest.image is not None, "the manifest has checked it"
        super().__init__(host, interface, engine)
        self.manifest = manifest
        self.task_name = manifest.task
        self._image = manifest.image
        self._limits = ImageLimits(settings.max_image_bytes, settings.max_image_pixels)
        self._worker = Tokenizing(host.executor)

    def facts(self) -> ModelFacts:
        return facts_with(self.manifest, self.interface)

    @property
    def decoded_bytes(self) -> int:
        """The bytes of an image in the graph's form: a small file may become large."""
        return 4 * self._image.channels * self._image.height * self._image.width  # float32

    async def compute(
        self,
        files: Sequence[bytes],
        caller: Caller,
        can_truncate: bool = False,  # noqa: ARG002 - texts are cut, images are not
        reading: Reading | None = None,  # noqa: ARG002 - every output is read
    ) -> ImageReply:
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
            outputs = await self._run(request, "", self._joined)
        return ImageReply(outputs, decoded.sizes, request.timings)

    def _joined(self, results: list[list[np.ndarray]]) -> dict[str, np.ndarray]:
        """Each output's rows of all images."""
        columns = zip(self._output_names, zip(*results, strict=True), strict=True)
        return {name: np.concatenate(rows) for name, rows in columns}

    async def interpreted(self, reply: ImageReply, read: Callable[[], T]) -> T:
        """The result of `read` from a reply, on another thread if it has many values."""
        if sum(values.size for values in reply.outputs.values()) <= INLINE_VALUES:
            return read()
        return await self._worker.run_elsewhere(read)
