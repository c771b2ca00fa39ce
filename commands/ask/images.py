"""`attendant classify-image`: image files in, their labels out."""

from pathlib import Path
from typing import Annotated

import typer

from commands.ask.asked import Asked
from service.errors import SettingError
from service.settings import Settings


def classify_image(
    asked: Asked,
    files: Annotated[list[Path], typer.Argument(help="One or more PNG or JPEG files.")],
    invert: Annotated[
        bool,
        typer.Option(
            envvar="ATTENDANT_INVERT",
            help="Invert the image first, if it is dark on light and the model was trained on "
            "light on dark, or the reverse; `attendant models` shows the training data. Needs "
            "Pillow.",
        ),
    ] = False,
) -> None:
    call = asked.call(images=[_inverted(path) if invert else _content(path) for path in files])
    with asked.client() as client:
        answer = client.ask(call)
    asked.show(answer, lambda found: asked.draw([path.name for path in files], found))


def _inverted(path: Path) -> bytes:
    from service.runtime.images import (
        ImageLimits,
        inverted,
    )  # imports numpy, which only --invert needs

    content = _content(path)
    defaults = Settings()
    limits = ImageLimits(defaults.max_image_bytes, defaults.max_image_pixels)
    try:
        return inverted(content, limits)
    except ModuleNotFoundError as error:
        raise SettingError("--invert needs Pillow: pip install 'attendant[vision]'") from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingError(f"FILE '{path}' cannot be read: {error.strerror}") from error
