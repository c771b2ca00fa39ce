"""What a training's figures say to somebody who reads them for the first time."""

import warnings
from collections.abc import Sequence

import pytest

from models.recipes.findings import remark_on_falling_loss, remark_on_run
from models.recipes.finetune import Finetuned
from models.remarks import DataWarning
from models.training.evaluation import Evaluation
from models.training.state import Measurement, Progress
from tests.fakes.tiny import tiny_classifier


def progress_of(losses: Sequence[float | None]) -> Progress:
    measurements = [Measurement(i, i, 0.5, loss, {}) for i, loss in enumerate(losses, 1)]
    progress = Progress(measurements=measurements)
    for each in measurements:
        if progress.best is None or each.is_better_than(progress.best):
            progress.best_number = each.number
    return progress


@pytest.mark.parametrize("losses", [(0.9, 0.5), (0.9, 0.91, 0.6)])
def test_a_loss_that_still_falls_at_the_end_is_said(losses: Sequence[float]) -> None:
    with pytest.warns(
        DataWarning, match=f"from {losses[-2]:.4f} to {losses[-1]:.4f}: more --steps"
    ):
        remark_on_falling_loss(progress_of(losses), "--steps")


@pytest.mark.parametrize("losses", [(), (0.5,), (0.9, 0.5, 0.6), (0.5, 0.499), (None, None)])
def test_a_loss_that_has_settled_is_not(losses: Sequence[float | None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        remark_on_falling_loss(progress_of(losses), "--steps")


def test_labels_that_no_row_is_taken_for_are_said() -> None:
    """A label without rows is not among them: nothing could be taken for it."""
    confusion = ((5, 0, 0), (2, 0, 0), (0, 0, 0))
    evaluation = Evaluation(0.1, 0.9, 0.8, ("ham", "spam", "joke"), confusion)
    run = Finetuned(tiny_classifier(), {"validation": evaluation}, progress_of((0.5,)), False)
    with pytest.warns(DataWarning, match=r"no row of validation is taken for 'spam' \(2 rows\): "):
        remark_on_run(run)
