"""The `classify-image` command: image files in, their labels out."""

from pathlib import Path
from typing import Annotated

import typer
from attendant.v1 import vision_pb2 as pb

from commands.ask.client.client import Client
from commands.ask.options import MAX_UINT32, SERVER, AsJson, Model, Server, Version, asks, show
from commands.ask.shown import tables
from service.errors import SettingError
from service.settings import Settings

Files = Annotated[list[Path], typer.Argument(help="One or more PNG or JPEG files.")]


@asks
def classify_image(
    model: Model,
    files: Files,
    top_k: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_UINT32,
            envvar="ATTENDANT_CLASSIFY_IMAGE_TOP_K",
            help="Number of labels per image, most likely first; 0 prints all of them.",
        ),
    ] = 3,
    invert: Annotated[
        bool,
        typer.Option(
            envvar="ATTENDANT_INVERT",
            help="Invert the image first, if it is dark on light and the model was trained on "
            "light on dark, or the reverse; `attendant models` shows the training data. Needs "
            "Pillow.",
        ),
    ] = False,
    version: Version = "",
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    request = pb.ClassifyImageRequest(
        model=model,
        version=version,
        images=[_inverted(path) if invert else _content(path) for path in files],
        top_k=top_k,
        all_scores=not top_k,
    )
    with Client(*server) as client:
        response = client.ask(request)
    show(response, lambda found: tables.images([path.name for path in files], found), as_json)


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
