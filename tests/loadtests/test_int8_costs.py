"""The cost of int8 for a checkpoint, on texts that its scales were not found on."""

from pathlib import Path

import pytest

from loadtests.measure.families import FAMILIES, write_family
from loadtests.measure.int8_costs import costs_of
from models.checkpoints.checkpoint import load_checkpoint
from tests.fakes.sessions import write_tokenizer
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


@pytest.mark.parametrize("kind", [family.kind for family in FAMILIES])
def test_each_family_is_written_as_an_embedder_and_as_a_reranker(kind: str, tmp_path: Path) -> None:
    (family,) = (each for each in FAMILIES if each.kind == kind)
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    write_tokenizer(tokenizer / "tokenizer.json")
    for is_reranker, task in ((False, "embedding"), (True, "pair-scoring")):
        folder = tmp_path / task
        write_family(family, folder, tokenizer, is_reranker=is_reranker)
        checkpoint = load_checkpoint(folder)
        assert checkpoint.task == task
        assert checkpoint.max_tokens <= 256
