"""Tables of how well a model reads."""

from rich.table import Table

from models.reading.answering import AnswerEvaluation
from models.reading.tagging import EntityEvaluation


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
    """Questions that have an answer, those that have none, and all."""
    table = Table("questions", title=f"{evaluated_on}: {evaluation.num_rows} rows")
    for column in ("exact match", "F1", "asked"):
        table.add_column(column, justify="right")
    for name, agreement in evaluation.parts():
        figures = (f"{value:.4f}" for value in (agreement.exact_match, agreement.f1))
        table.add_row(name, *figures, str(agreement.num_questions))
    return table
