"""What a precision costs: figures of a checkpoint, of served embeddings, and the texts for both."""

from pathlib import Path

import numpy as np
import pytest
import typer

from loadtests.measure.accuracy import HTTP, TORCH, costs_of, similarities, similarity_of
from loadtests.measure.families import FAMILIES, write_family
from loadtests.measure.texts import FILES, PLAY, Pair, pairs_of, real_texts
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


WORDS = ("call now we are on lunch", "tomorrow free prize winner the", "a later sorry win cash")


def test_every_way_to_embed_orders_pairs_as_pytorch_does() -> None:
    """Over gRPC, and in base64 over HTTP, to the last digits, which order pairs that are equal."""
    rows = similarities(tiny_embedder(), pairs_of(WORDS, 40), ["fp32"])
    assert list(rows) == [TORCH, "served fp32, gRPC", f"served fp32, {HTTP}"]
    torch = rows.pop(TORCH)
    assert torch["with_torch"] == pytest.approx(1.0)
    for name, row in rows.items():
        assert row["with_torch"] == pytest.approx(1.0, abs=1e-2), name
        assert row["least"] == pytest.approx(1.0, abs=1e-5), name
        assert row["with_shares"] == pytest.approx(torch["with_shares"], abs=1e-2), name


def test_figures_of_a_way_are_of_its_vectors() -> None:
    """Cosines of 0, 0.6 and 1 in the order of the shares; in another way two change places."""
    pairs = [Pair("a", "b", share) for share in (0.1, 0.5, 0.9)]
    first = np.tile([1.0, 0.0], (3, 1))
    expected = np.stack([first, np.array([[0.0, 1.0], [0.6, 0.8], [1.0, 0.0]])])
    changed = np.stack([2 * first, np.array([[0.6, 0.8], [0.0, 1.0], [1.0, 0.0]])])
    exact = similarity_of(pairs, expected, expected)
    assert [exact["with_shares"], exact["with_torch"]] == pytest.approx([1.0, 1.0])
    row = similarity_of(pairs, changed, expected)
    assert [row["with_shares"], row["with_torch"]] == pytest.approx([0.5, 0.5])
    assert row["least"] == pytest.approx(0.8)
    assert row["mean"] == pytest.approx((3 + 0.8 + 0.8 + 1) / 6)


def test_pairs_keep_a_share_of_the_words_and_take_the_rest_of_another_text() -> None:
    for pair in pairs_of(WORDS, 50):
        words, others = pair.text.split(), pair.other.split()
        num_kept = round(pair.share * len(words))
        kept = others[:num_kept]
        assert set(kept) <= set(words)
        assert not set(others[num_kept:]) & set(words)
    assert {pair.share for pair in pairs_of(WORDS, 50)} >= {0.0, 1.0}
    assert pairs_of(WORDS, 5) == pairs_of(WORDS, 5)


def test_public_texts_are_read_without_their_labels_where_they_are(tmp_path: Path) -> None:
    assert len(real_texts()[0]) > 100
    with pytest.raises(typer.BadParameter, match=r"lacks sst2\.dev\.txt, sms_spam\.tsv"):
        real_texts(tmp_path)
    for name, separator in FILES.items():
        (tmp_path / name).write_text(f"1{separator}of {name}\n")
    (tmp_path / PLAY).write_text("word " * 100)
    texts, origin = real_texts(tmp_path)
    assert texts == ["of sst2.dev.txt", "of sms_spam.tsv", " ".join(["word"] * 60)]
    assert origin == str(tmp_path)
