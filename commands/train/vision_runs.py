"""The run of `attendant vision`, after its arguments are parsed.

Knows nothing about flags or exit codes (`commands/train/vision.py` does). It imports PyTorch, so
the command line imports it only when it runs.
"""

from pathlib import Path

from rich.console import Console

from commands.train.progress import TrainingBar
from commands.train.reports import confusion_table, reports_of
from commands.train.running import run_training, save_trained
from models.checkpoints.checkpoint import check_replaceable
from models.data.images import digits, read_images
from models.recipes.vision import split_images, train_vit
from models.recipes.vision_settings import VisionSettings
from models.training.state import FRESH


def train_on_images(
    data: Path | None, output: Path, settings: VisionSettings, *, resume: bool
) -> None:
    """Train a classifier of images, of digits without `data`; write checkpoint and reports."""
    check_replaceable(output)  # now, rather than after the training
    splits = split_images(read_images(data) if data else digits(), settings)
    trained = run_training(
        lambda session: train_vit(splits, settings, session),
        TrainingBar(),
        output,
        resume=resume,
    )
    save_trained(trained.checkpoint, output, reports_of(trained, FRESH, splits, settings))
    console = Console()
    console.print(confusion_table(trained.evaluation, trained.evaluated_on))
    console.print(f"{output}: epoch {trained.progress.best_number}", highlight=False)
