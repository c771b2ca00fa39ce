"""Image files to what a network takes; the one door to Pillow, which is an extra.

Files are not trusted. Only PNG and JPEG are read; the number of bytes of a file and of pixels in
its header is checked before decoding, and of the pixels that a long, narrow image gets before its
middle is cut out. The number of pixels of all images of a request, and of a JPEG's scans, bounds
the time. Headers are read twice and not kept: their metadata may take 64 MiB. Transparency is
ignored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from service.contract.image_input import ImageInput
from service.errors import InvalidArgument, Unimplemented

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG")
MAX_SCANS = 100  # of a JPEG, ten where it is progressive; each may go through all pixels
START_OF_SCAN = b"\xff\xda"  # is nowhere in what is compressed
MAX_IMAGES_OF_FULL_SIZE = 4  # of one request, so that all of it stays a bounded piece of work


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """The bounds of one image."""

    max_bytes: int
    max_pixels: int


@dataclass(frozen=True, slots=True)
class DecodedImages:
    """Float32 [N, C, H, W] as the network takes them, and each one's width and height before."""

    pixel_values: np.ndarray
    sizes: list[tuple[int, int]]


def check_sizes(files: Sequence[bytes], limits: ImageLimits) -> None:
    """Raise `InvalidArgument` for a file that is empty or over the limit."""
    for index, file in enumerate(files):
        if not 1 <= len(file) <= limits.max_bytes:
            raise _refused(
                index, f"has {len(file)} bytes, the server takes 1 to {limits.max_bytes}"
            )


def decode_images(
    files: Sequence[bytes],
    image_input: ImageInput,
    limits: ImageLimits,
    check: Callable[[], None] = lambda: None,
) -> DecodedImages:
    """Decode files in their order, or raise `InvalidArgument` naming the one that cannot be.

    `check` is called before each header and each image, and may raise to end the work.
    """
    sizes = []
    for index, file in enumerate(files):
        check()
        sizes.append(_open(file, index, limits).size)
    total = sum(width * height for width, height in sizes)
    most = MAX_IMAGES_OF_FULL_SIZE * limits.max_pixels
    if total > most:
        raise InvalidArgument(
            f"the images have {total} pixels in all, the server takes at most {most}"
        )
    values = np.empty(
        (len(files), image_input.channels, image_input.height, image_input.width), np.float32
    )
    for index, file in enumerate(files):
        check()
        values[index] = _pixels_of(_open(file, index, limits), index, image_input, limits)
    shape = (-1, 1, 1)
    values -= np.array(image_input.mean, np.float32).reshape(shape)
    values /= np.array(image_input.std, np.float32).reshape(shape)
    return DecodedImages(values, sizes)


def _refused(index: int, reason: str) -> InvalidArgument:
    """The error of one of the images."""
    return InvalidArgument(reason, f"images[{index}]", subject=f"image {index}")


def inverted(file: bytes, limits: ImageLimits) -> bytes:
    """The image as PNG with light and dark exchanged, or `InvalidArgument`."""
    from PIL import ImageOps

    content = BytesIO()
    image = ImageOps.exif_transpose(_open(file, 0, limits))
    image = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    ImageOps.invert(image).save(content, format="PNG")
    return content.getvalue()


def _open(file: bytes, index: int, limits: ImageLimits) -> "Image.Image":
    """Read a file's header."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise Unimplemented(
            "this server decodes no images, as Pillow is not installed: pip install "
            "'attendant[vision]', or send pixel_values as a tensor"
        ) from error
    try:
        image = Image.open(BytesIO(file), formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise _refused(index, f"has too many pixels: {error}") from error
    except Exception as error:  # each format raises its own
        raise _refused(
            index, f"is not an image in a format that is read: {' or '.join(FORMATS)}"
        ) from error
    if not 1 <= image.width * image.height <= limits.max_pixels:
        raise _refused(
            index,
            f"has {image.width} x {image.height} pixels, the server takes 1 to "
            f"{limits.max_pixels} in all",
        )
    if image.format == "JPEG" and (num_scans := file.count(START_OF_SCAN)) > MAX_SCANS:
        raise _refused(index, f"has {num_scans} scans, the server takes at most {MAX_SCANS}")
    return image


def _pixels_of(
    image: "Image.Image", index: int, image_input: ImageInput, limits: ImageLimits
) -> np.ndarray:
    """Float32 [C, H, W] from 0 to 1, upright as the camera's note says."""
    from PIL import Image, ImageOps

    try:
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):  # 16 bits, which `convert` would clip
            upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
        upright = upright.convert("L" if image_input.channels == 1 else "RGB")
    except Exception as error:  # each format raises its own
        raise _refused(index, f"is broken or cut off: {error}") from error
    height, width = image_input.resized(upright.height, upright.width)
    if height * width > max(limits.max_pixels, image_input.height * image_input.width):
        raise _refused(
            index,
            f"has {upright.width} x {upright.height} pixels, which become "
            f"{width} x {height}; the server takes at most {limits.max_pixels} in all",
        )
    if upright.size != (width, height):
        upright = upright.resize((width, height), Image.Resampling[image_input.resample.upper()])
    top, left = (height - image_input.height) // 2, (width - image_input.width) // 2
    pixels = np.atleast_3d(np.asarray(upright))
    middle = pixels[top : top + image_input.height, left : left + image_input.width]
    return np.moveaxis(middle.astype(np.float32) / 255.0, 2, 0)
