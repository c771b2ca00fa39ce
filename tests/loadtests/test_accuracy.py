"""What a precision costs: figures of a checkpoint, and the texts for them."""

from pathlib import Path

import pytest
import typer

from loadtests.measure.accuracy import costs_of
from loadtests.measure.texts import FILES, PLAY, real_texts
from tests.fakes.tiny import tiny_embedder

TEXTS = (
    "call now we are on lunch",
    "tomorrow free prize winner",
    "a later sorry win cash",
    "lunch",
)


def test_a_checkpoint_has_the_figures_of_its_task_on_the_texts_that_were_given() -> None:
    """In float32, whose cost is nothing on any processor."""
    figures = costs_of(tiny_embedder(), TEXTS, "fp32")
    assert figures.pop("texts_compared") == len(TEXTS)
    assert figures == pytest.approx(
        {
            "mean_text_cosine": 1.0,
            "least_text_cosine": 1.0,
            "same_neighbours": 1.0,
            "similarity_correlation": 1.0,
            "max_similarity_change": 0.0,
            "mean_similarity_change": 0.0,
        },
        abs=1e-5,
    )


def test_public_texts_are_read_without_their_labels_where_they_are(tmp_path: Path) -> None:
    assert len(real_texts()) > 100
    with pytest.raises(typer.BadParameter, match=r"lacks sst2\.dev\.txt, sms_spam\.tsv"):
        real_texts(tmp_path)
    for name, separator in FILES.items():
        (tmp_path / name).write_text(f"1{separator}of {name}\n")
    (tmp_path / PLAY).write_text("word " * 100)
    expected = ["of sst2.dev.txt", "of sms_spam.tsv", " ".join(["word"] * 60)]
    assert real_texts(tmp_path) == expected
