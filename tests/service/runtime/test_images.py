"""Image files to pixels: what is done to them, and when it ends."""

import sys
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from service.contract.image_input import ImageInput
from service.contract.manifest import Manifest
from service.errors import DeadlineExceeded, InvalidArgument, LoadError, Unimplemented
from service.runtime.images import ImageLimits, decode_images

LIMITS = ImageLimits(max_bytes=100_000, max_pixels=10_000)
GREY = ImageInput(4, 6, 1, (0.5,), (0.25,))
COLOURED = ImageInput(4, 6, 3, (0.5, 0.25, 0.0), (0.5, 0.25, 1.0))


def file_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    content = BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


def test_pixels_are_normalised_channel_by_channel() -> None:
    """(1 - 0.5) / 0.5, (0 - 0.25) / 0.25 and (0.2 - 0) / 1 of the colour 255, 0, 51."""
    file = file_of(Image.new("RGB", (6, 4), (255, 0, 51)))
    decoded = decode_images([file], COLOURED, LIMITS)
    assert decoded.pixel_values.shape == (1, 3, 4, 6)
    assert decoded.pixel_values.dtype == np.float32
    np.testing.assert_allclose(decoded.pixel_values[0, :, 1, 1], [1.0, -1.0, 0.2], atol=1e-6)


def test_grey_is_made_of_colours_and_sizes_are_told_as_they_came() -> None:
    decoded = decode_images([file_of(Image.new("RGB", (12, 9), "white"))], GREY, LIMITS)
    assert decoded.sizes == [(12, 9)]
    assert (decoded.pixel_values == 2.0).all()


def test_an_image_is_turned_as_the_camera_noted() -> None:
    """Orientation 3 is upside down."""
    pixels = np.zeros((4, 6), np.uint8)
    pixels[0, 0] = 255
    note = Image.Exif()
    note[0x0112] = 3
    decoded = decode_images(
        [file_of(Image.fromarray(pixels), exif=note.tobytes())], GREY, LIMITS
    ).pixel_values[0, 0]
    assert decoded.argmax() == decoded.size - 1


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_kind_of_png_is_read(mode: str) -> None:
    white = Image.new("L", (6, 4), 255)
    image = Image.fromarray(np.full((4, 6), 65_535, np.uint16)) if mode == "I;16" else white
    decoded = decode_images(
        [file_of(image if mode == "I;16" else white.convert(mode))], GREY, LIMITS
    )
    np.testing.assert_allclose(decoded.pixel_values, 2.0, atol=1e-6)


def test_a_cmyk_jpeg_is_read() -> None:
    file = file_of(Image.new("CMYK", (6, 4), (0, 0, 0, 0)), "JPEG")
    assert decode_images([file], COLOURED, LIMITS).pixel_values[0, 0].min() > 0.95


def test_work_ends_between_two_images_when_it_is_told_to() -> None:
    """As when the deadline passed, or the caller left."""
    asked = iter([None, DeadlineExceeded("over")])

    def check() -> None:
        if (error := next(asked)) is not None:
            raise error

    files = [file_of(Image.new("L", (6, 4)))] * 3
    with pytest.raises(DeadlineExceeded):
        decode_images(files, GREY, LIMITS, check)


def test_a_header_is_judged_before_any_image_is_decoded() -> None:
    """The first is fine; nothing is done for it."""
    files = [file_of(Image.new("L", (6, 4))), file_of(Image.new("L", (200, 51)))]
    asked = iter(files)

    def check() -> None:
        next(asked)  # raises once decoding begins

    with pytest.raises(InvalidArgument, match="image 1 has 200 x 51 pixels"):
        decode_images(files, GREY, LIMITS, check)


def test_what_headers_note_is_not_kept() -> None:
    """A megabyte of zeros in a file of some kilobytes, twenty times: never all of it at once."""
    notes = PngImagePlugin.PngInfo()
    notes.add_text("note", "0" * 2**20, zip=True)
    files = [file_of(Image.new("L", (6, 4)), pnginfo=notes)] * 20
    tracemalloc.start()
    try:
        decode_images(files, GREY, LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(map(len, files)) < 4_096
    assert peak < 10 * 2**20


def test_a_jpeg_of_many_scans_is_refused_before_it_is_decoded() -> None:
    """Each goes through all pixels in a few bytes: 16 MiB of them would take an hour."""
    file = file_of(Image.new("L", (64, 64), 200), "JPEG", progressive=True)
    assert decode_images([file], GREY, LIMITS).sizes == [(64, 64)]
    last_scan = file[file.rindex(b"\xff\xda") : -2]
    many = file[:-2] + last_scan * 100 + file[-2:]
    with pytest.raises(InvalidArgument, match=r"image 1 has 1\d\d scans, the server takes at most"):
        decode_images([file, many], GREY, LIMITS)


def test_without_pillow_tensors_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_of(Image.new("L", (6, 4)))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(Unimplemented, match=r"pip install 'attendant\[vision\]'"):
        decode_images([file], GREY, LIMITS)


BROKEN: dict[str, Callable[[], object]] = {
    "image.height is 0": lambda: ImageInput(0, 6, 1, (0.5,), (0.5,)),
    "image.width is 1.5": lambda: ImageInput(4, 1.5, 1, (0.5,), (0.5,)),  # type: ignore[arg-type]
    "image.channels is 2": lambda: ImageInput(4, 6, 2, (0.5,) * 2, (0.5,) * 2),
    r"expected 3 numbers each": lambda: ImageInput(4, 6, 3, (0.5,), (0.5,)),
    r"those of std above 0": lambda: ImageInput(4, 6, 1, (0.5,), (0.0,)),
    "image is missing": lambda: Manifest("image-classification", "fp32", 17, 0, ("a", "b")),
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_manifest_says_completely_what_is_done_to_images(message: str) -> None:
    with pytest.raises(LoadError, match=message):
        BROKEN[message]()


def test_the_smallest_image_is_one_pixel() -> None:
    assert ImageInput(1, 1, 1, (0.0,), (0.01,)).height == 1


def test_a_manifest_comes_back_from_its_text() -> None:
    manifest = Manifest("image-classification", "fp32", 17, 0, ("a", "b"), image=COLOURED)
    assert Manifest.from_json(manifest.to_json()) == manifest
