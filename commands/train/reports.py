"""Reports on a fine-tuning run: a table for its task, two pictures and a JSON file.

Knows nothing about training. Pictures are drawn without pyplot, whose global figures would need a
display and a clean-up.
"""

import csv
import io
import json
from collections.abc import Mapping
from itertools import product
from typing import Any, Protocol

from matplotlib.figure import Figure
from rich.table import Table

from commands import pictures
from models.data.datasets import D, Dataset, Splits
from models.recipes.answering import AnswerEvaluation
from models.recipes.finetune import Finetuned
from models.recipes.pair_scoring import ScoreEvaluation
from models.recipes.tagging import EntityEvaluation
from models.training.evaluation import Evaluation
from models.training.state import Progress
from models.training.supervised import J


class Described(Protocol):
    """Settings that can be written to a report."""

    def to_dict(self) -> dict[str, Any]: ...


def reports_of(
    finetuned: Finetuned[J], origin: str, splits: Splits[D], settings: Described
) -> dict[str, bytes]:
    """The report files by name, of a run that began with `origin`.

    The confusion matrix is of classifiers of whole texts or images.
    """
    reports = {
        "training.json": training_json(finetuned, origin, splits, settings),
        "loss.png": loss_picture(finetuned.progress),
    }
    if isinstance(finetuned.evaluation, Evaluation):
        picture = confusion_picture(finetuned.evaluation, finetuned.evaluated_on)
        reports["confusion.png"] = picture
        rows = splits.test if splits.test is not None else splits.validation
        if isinstance(rows, Dataset):
            reports["wrong.csv"] = wrong_rows(finetuned.evaluation, rows)
    return reports


def wrong_rows(evaluation: Evaluation, rows: Dataset) -> bytes:
    """The rows whose label was not found, the surest mistakes first, as CSV.

    It has the columns that training reads, so that rows can be mended and trained on.
    """
    pairs = zip(rows.examples, evaluation.predictions, strict=True)
    wrong = [(row, taken) for row, taken in pairs if row.label != taken.label]
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    pair = ["text_pair"] if rows.has_pairs else []
    writer.writerow(["line", "label", "predicted", "probability", "text", *pair])
    for row, taken in sorted(wrong, key=lambda each: -each[1].probability):
        second = [row.text_pair] if pair else []
        probability = f"{taken.probability:.4f}"
        writer.writerow([row.line, row.label, taken.label, probability, row.text, *second])
    return file.getvalue().encode()


def confusion_table(evaluation: Evaluation, evaluated_on: str) -> Table:
    """One row per true label, one column per predicted one, and recall and precision of each."""
    title = (
        f"{evaluated_on}: {evaluation.num_rows} rows, accuracy {evaluation.accuracy:.2%}, "
        f"macro F1 {evaluation.macro_f1:.4f}"
    )
    table = Table("true \\ predicted", title=title, min_width=len(title))
    for label in evaluation.labels:
        table.add_column(label, justify="right")
    table.add_column("recall", justify="right")
    figures = evaluation.by_label
    for label, counts in zip(evaluation.labels, evaluation.confusion, strict=True):
        recall = f"{figures[label].recall:.4f}" if figures[label].true else "no rows"
        table.add_row(label, *(str(count) for count in counts), recall)
    table.add_section()
    table.add_row(
        "precision",
        *(f"{each.precision:.4f}" if each.predicted else "none" for each in figures.values()),
    )
    return table


def training_json(
    finetuned: Finetuned[J], origin: str, splits: Splits[D], settings: Described
) -> bytes:
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    progress = finetuned.progress
    values = {
        "origin": origin,
        "data": {
            name: {"file": part.name, "rows": len(part)}
            for name, part in parts.items()
            if part is not None
        },
        "settings": settings.to_dict(),
        "bfloat16": finetuned.bfloat16,
        "evaluated_on": finetuned.evaluated_on,
        "evaluation": finetuned.evaluation.to_dict(),
        "best_epoch": progress.best_number,
        "epochs": [
            {
                "epoch": epoch.number,
                "train_loss": epoch.train_loss,
                "validation_loss": epoch.validation_loss,
                "scores": epoch.figures,
            }
            for epoch in progress.measurements
        ],
        "training_s": round(progress.seconds, 1),
        "step_losses": progress.step_losses,
    }
    return json_of(values)


def confusion_picture(evaluation: Evaluation, evaluated_on: str) -> bytes:
    """The confusion matrix; a row is shaded by its shares, so that rare labels are visible too."""
    shares = [[n / max(1, sum(row)) for n in row] for row in evaluation.confusion]
    size = 2.5 + 0.7 * len(evaluation.labels)
    figure = Figure(figsize=(size + 0.5, size), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    ticks = range(len(evaluation.labels))
    axes.set_xticks(ticks, evaluation.labels, rotation=45, ha="right")
    axes.set_yticks(ticks, evaluation.labels)
    axes.set(xlabel="predicted", ylabel="true")
    axes.set_title(f"{evaluated_on}: accuracy {evaluation.accuracy:.2%}")
    for i, j in product(ticks, ticks):
        colour = "white" if shares[i][j] > 0.5 else "black"
        axes.text(j, i, str(evaluation.confusion[i][j]), ha="center", va="center", color=colour)
    return png_of(figure)


def loss_picture(progress: Progress) -> bytes:
    """The training loss of every step, and the validation loss of every epoch."""
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots()
    losses, epochs, best = progress.step_losses, progress.measurements, progress.best
    assert best is not None, "the last epoch is measured"
    ends = [epoch.step for epoch in epochs]
    axes.plot(range(1, len(losses) + 1), losses, alpha=0.35, label="training, per step")
    axes.plot(ends, [epoch.train_loss for epoch in epochs], "o-", label="training, per epoch")
    validation: Any = [epoch.validation_loss for epoch in epochs]
    axes.plot(ends, validation, "s-", label="validation")
    axes.axvline(best.step, linestyle=":", label="best epoch")
    axes.set(xlabel="step", ylabel="cross entropy", ylim=(0.0, None))
    axes.legend()
    return png_of(figure)


def json_of(values: Mapping[str, Any]) -> bytes:
    """The values as indented JSON."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def png_of(figure: Figure) -> bytes:
    return pictures.png_of(figure, dpi=120)


def entity_table(evaluation: EntityEvaluation, evaluated_on: str) -> Table:
    """One row per type, and one for all entities together."""
    title = f"{evaluated_on}: {evaluation.num_rows} rows, entity F1 {evaluation.overall.f1:.4f}"
    table = Table("type", title=title)
    for column in ("precision", "recall", "F1", "entities"):
        table.add_column(column, justify="right")
    for name, counts in {**evaluation.counts, "all": evaluation.overall}.items():
        figures = (f"{value:.4f}" for value in (counts.precision, counts.recall, counts.f1))
        table.add_row(name, *figures, str(counts.true))
    return table


def answer_table(evaluation: AnswerEvaluation, evaluated_on: str) -> Table:
    """A row for questions with an answer, one for those without, and one for all."""
    table = Table("questions", title=f"{evaluated_on}: {evaluation.num_rows} rows")
    for column in ("exact match", "F1", "count"):
        table.add_column(column, justify="right")
    for name, agreement in evaluation.parts():
        figures = (f"{value:.4f}" for value in (agreement.exact_match, agreement.f1))
        table.add_row(name, *figures, str(agreement.num_questions))
    return table


def score_table(evaluation: ScoreEvaluation, evaluated_on: str) -> Table:
    """One row: correlation and mean error of the scores of all pairs."""
    table = Table("pairs", title=f"{evaluated_on}: {evaluation.num_rows} rows")
    for column in ("correlation", "mean error"):
        table.add_column(column, justify="right")
    figures = (f"{value:.4f}" for value in (evaluation.correlation, evaluation.mean_error))
    table.add_row("all", *figures)
    return table
