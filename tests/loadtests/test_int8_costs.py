"""The cost of int8 for a checkpoint, on texts that its scales were not found on."""

import pytest

from loadtests.measure.int8_costs import costs_of
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
        },
        abs=1e-5,
    )
