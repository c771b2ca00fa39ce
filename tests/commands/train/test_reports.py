"""Figures, the confusion matrix, and the three ways they are shown."""

import json
from pathlib import Path

import torch
from rich.console import Console

from commands.train.reports import confusion_table, reports_of, wrong_rows
from models.checkpoints.checkpoint import Checkpoint
from models.data.batches import TokenizedDataset
from models.data.datasets import Dataset, Example, Splits, read_dataset
from models.networks.heads import SequenceClassifier
from models.recipes.finetune import finetune
from models.training.evaluation import Evaluation, Prediction, evaluate, predict_logits
from models.training.settings import TrainingSettings

PNG = b"\x89PNG\r\n\x1a\n"


def test_logits_come_in_the_order_of_the_rows(classifier_checkpoint: Checkpoint) -> None:
    """Rows are judged in batches by length; each must equal the row alone."""
    model = classifier_checkpoint.model
    assert isinstance(model, SequenceClassifier)
    sizes = [3, 9, 1, 5] * 40  # three batches
    ids = [tuple(4 + (i + j) % 28 for j in range(size)) for i, size in enumerate(sizes)]
    rows = TokenizedDataset(tuple(ids), tuple(0 for _ in ids), pad_token_id=0)
    logits = predict_logits(model.train(), rows, 2)
    assert model.training
    model.eval()
    for i in (0, 1, 77, 159):
        alone = model(torch.tensor([ids[i]]), torch.ones(1, sizes[i], dtype=torch.int64))
        torch.testing.assert_close(logits[i], alone[0], atol=1e-5, rtol=0)


def test_a_label_that_is_never_predicted_counts_as_zero(classifier_checkpoint: Checkpoint) -> None:
    """All four rows taken for ham: accuracy 3/4, F1 of ham 6/7 and of spam 0, mean 3/7."""
    model = classifier_checkpoint.model
    assert isinstance(model, SequenceClassifier)
    with torch.no_grad():
        model.head.output.weight.zero_()
        model.head.output.bias.copy_(torch.tensor([1.0, 0.0]))
    rows = TokenizedDataset(((4,), (5,), (6,), (7,)), (0, 0, 1, 0), pad_token_id=0)
    found = evaluate(model, rows, ("ham", "spam"))
    assert found.confusion == ((3, 0), (1, 0))
    assert found.accuracy == 0.75
    assert abs(found.macro_f1 - 3 / 7) < 1e-12
    assert found.num_rows == 4


def test_the_table_has_a_row_per_true_label() -> None:
    evaluation = Evaluation(0.1, 0.9, 0.8, ("ham", "spam"), ((50, 3), (7, 40)))
    console = Console(width=80, record=True, file=None, quiet=True)
    table = confusion_table(evaluation, "test")
    console.quiet = False
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().splitlines()
    assert "test: 100 rows, accuracy 90.00%" in " ".join(lines)
    assert any(line.split()[1:8:2] == ["ham", "50", "3", "0.9434"] for line in lines)
    assert any(line.split()[1:6:2] == ["precision", "0.8772", "0.9302"] for line in lines)


def test_a_label_without_rows_or_predictions_has_no_figure() -> None:
    """Instead of a zero that reads like a measurement."""
    evaluation = Evaluation(
        0.1, 0.9, 0.8, ("ham", "joke", "spam"), ((5, 0, 1), (0, 0, 0), (2, 0, 3))
    )
    console = Console(width=100)
    with console.capture() as capture:
        console.print(confusion_table(evaluation, "test"))
    joke = next(
        line for line in capture.get().splitlines() if " joke " in line and "no rows" in line
    )
    assert joke.split()[1:8:2] == ["joke", "0", "0", "0"]
    assert "none" in next(line for line in capture.get().splitlines() if "precision" in line)
    assert evaluation.to_dict()["by_label"]["ham"] == {
        "precision": 5 / 7,
        "recall": 5 / 6,
        "rows": 6,
    }


def test_wrong_rows_are_a_file_that_training_reads(tmp_path: Path) -> None:
    """The surest mistake first; commas, quotes, line breaks and second texts survive."""
    rows = Dataset(
        "a.csv",
        (
            Example(2, "ham", 'a "quoted", text', "one"),
            Example(3, "spam", "two\nlines", "two"),
            Example(4, "spam", "right", "three"),
        ),
    )
    predictions = (Prediction("spam", 0.6), Prediction("ham", 0.9), Prediction("spam", 0.8))
    evaluation = Evaluation(0.1, 0.3, 0.3, ("ham", "spam"), ((0, 1), (1, 1)), predictions)
    (tmp_path / "wrong.csv").write_bytes(wrong_rows(evaluation, rows))
    read = read_dataset(tmp_path / "wrong.csv").examples
    assert [(each.label, each.text, each.text_pair) for each in read] == [
        ("spam", "two\nlines", "two"),
        ("ham", 'a "quoted", text', "one"),
    ]
    assert (tmp_path / "wrong.csv").read_text().splitlines()[0] == (
        "line,label,predicted,probability,text,text_pair"
    )


def test_reports_are_json_and_pictures(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    settings = TrainingSettings(epochs=2, batch_size=8)
    finetuned = finetune(embedder_checkpoint, splits, settings)
    reports = reports_of(finetuned, "tiny", splits, settings)
    assert reports.keys() == {"training.json", "confusion.png", "wrong.csv", "loss.png"}
    assert reports["confusion.png"].startswith(PNG)
    assert reports["loss.png"].startswith(PNG)
    values = json.loads(reports["training.json"])
    assert values["data"]["train"] == {"file": "messages.tsv", "rows": 24}
    assert values["settings"]["epochs"] == 2
    assert len(values["epochs"]) == 2
    assert values["evaluation"]["confusion"] == [list(r) for r in finetuned.evaluation.confusion]
    assert len(values["step_losses"]) == 6
