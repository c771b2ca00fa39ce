"""`attendant vision`: arguments in, messages and exit codes out; PyTorch only when it runs."""

from pathlib import Path
from typing import Any

from commands.flags import command_of, flag, flags_of
from commands.train.messages import messages
from commands.train.options import output_flag, resume_flag
from models.recipes.vision_settings import VisionSettings

PREFIX = "ATTENDANT_VISION"


def _vision(*, output: Path, data: Path | None, resume: bool, **values: Any) -> None:
    with messages("vision"):
        settings = VisionSettings(**values)
        from commands.train.vision_runs import train_on_images

        train_on_images(data, output, settings, resume=resume)


vision = command_of(
    _vision,
    [
        output_flag(PREFIX, "training.json, confusion.png and loss.png"),
        flag(
            "data",
            Path | None,
            None,
            "An .npz of `images`, uint8 [N, H, W] or [N, H, W, C], and `labels`. By default "
            "scikit-learn's digits: 1,797 images of 8 x 8 pixels, light on dark. Images to "
            "classify later must be light on dark too.",
            f"{PREFIX}_DATA",
            shown="digits",
        ),
        resume_flag(PREFIX),
        *flags_of(VisionSettings, PREFIX),
    ],
)
