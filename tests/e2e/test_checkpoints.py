"""A few rows of the table of checkpoints, and that the document has the rows of the code."""

from pathlib import Path

import pytest

from tests.checkpoints.__main__ import BEGIN, DOCUMENT, END, compared, is_wrong
from tests.checkpoints.comparison import COMPARISONS
from tests.checkpoints.rows import HEADS, ROWS

# Heads that are served, and a family that is refused; the command compares all rows.
COMPARED = (
    "bert-embedding-mean",
    "xlm-roberta-three-ways",
    "bert-terms-max",
    "xlm-roberta-tokens",
    "roberta-masks",
    "modernbert-classes",
    "bert-classes-several-labels",
    "camembert-score-raw",
    "nomic-bert-embedding-mean",
    "mpnet-embedding-mean",
    "deberta-v2-classes",
    "eurobert-classes",
    "ernie-score",
    "glm4-embedding-last-token",
    "beit-images",
)


@pytest.mark.timeout(400)  # fifteen folders are exported
def test_served_answers_are_those_of_transformers(tmp_path: Path) -> None:
    outcomes = compared([row for row in ROWS if row.name in COMPARED], tmp_path)
    refused = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, str)}
    assert not any(map(is_wrong, outcomes.values())), outcomes
    assert list(refused) == ["beit-images"]
    assert "vit, deit; it cannot be imported" in refused["beit-images"]


def test_every_head_is_compared() -> None:
    assert COMPARISONS.keys() == HEADS.keys() == {row.head for row in ROWS}
    assert len({row.name for row in ROWS}) == len(ROWS) >= 40


def test_the_document_has_the_rows_of_the_code_and_each_refusal_names_the_way_out() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    refused = [answers for *_, answers in lines if answers.startswith("refused")]
    assert all("it cannot be imported" in each for each in refused)
    assert [(kind.strip("| `"), head, checkpoints) for kind, head, checkpoints, *_ in lines] == [
        (row.kind, row.head, row.checkpoints) for row in ROWS
    ]
