"""What `attendant vision` does, once its arguments are understood.

Knows nothing about flags or exit codes (`models/vision/cli.py` does). It imports PyTorch, so the
command line imports it only when it runs.
"""

from pathlib import Path

from rich.console import Console

from models.checkpoint import check_replaceable, save_checkpoint
from models.commands import stop_requests
from models.progress import ProgressBar
from models.reports import confusion_table, reports_of
from models.training_state import state_path
from models.vision.images import digits, read_images
from models.vision.settings import VisionSettings
from models.vision.training import FRESH, split_images, train_vit


def train_on_images(
    data: Path | None, output: Path, settings: VisionSettings, *, resume: bool
) -> None:
    """Train a classifier of images, of digits without `data`; write checkpoint and reports."""
    check_replaceable(output)  # now, rather than after the training
    splits = split_images(read_images(data) if data else digits(), settings)
    state_file = state_path(output)
    with stop_requests() as should_stop, ProgressBar(Console(stderr=True)) as bar:
        trained = train_vit(
            splits,
            settings,
            state_file=state_file,
            resume=resume,
            listener=bar,
            should_stop=should_stop,
        )
    save_checkpoint(trained.checkpoint, output, reports_of(trained, FRESH, splits, settings))
    state_file.unlink(missing_ok=True)
    console = Console()
    console.print(confusion_table(trained.evaluation, trained.evaluated_on))
    console.print(f"{output}: epoch {trained.progress.best_epoch}", highlight=False)
