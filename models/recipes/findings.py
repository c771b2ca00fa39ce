"""Remarks on how a training went: what its figures alone do not tell a newcomer.

Knows nothing about terminals; a command shows remarks.
"""

from models.recipes.finetune import Finetuned
from models.remarks import remark
from models.training.evaluation import Evaluation
from models.training.state import Progress
from models.training.supervised import J

STILL_FALLING = 0.02  # of the loss, from a measurement to the last one


def remark_on_run(finetuned: Finetuned[J]) -> None:
    """Say which labels are never predicted, and whether more training may help."""
    remark_on_falling_loss(finetuned.progress, "--epochs")
    if isinstance(finetuned.evaluation, Evaluation):
        _remark_on_labels_never_predicted(finetuned.evaluation, finetuned.evaluated_on)


def remark_on_falling_loss(progress: Progress, flag: str) -> None:
    """Say that the validation loss still fell at the end, where it did by more than noise."""
    measured = progress.measurements
    if len(measured) < 2 or progress.best_number < len(measured):
        return
    before, last = (each.validation_loss for each in measured[-2:])
    if before is not None and last is not None and last < (1 - STILL_FALLING) * before:
        remark(
            f"the validation loss still fell at the end, from {before:.4f} to {last:.4f}: more "
            f"{flag} may give a better model"
        )


def _remark_on_labels_never_predicted(evaluation: Evaluation, evaluated_on: str) -> None:
    missed = {
        label: figures.true
        for label, figures in evaluation.by_label.items()
        if figures.true and not figures.predicted
    }
    if missed:
        listed = ", ".join(f"{label!r} ({count} rows)" for label, count in missed.items())
        remark(
            f"no row of {evaluated_on} is taken for {listed}: more rows of these labels, more "
            "--epochs, or --class-weights balanced may help"
        )
