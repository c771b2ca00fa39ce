"""The vectors of texts: which texts have one, and how alike two are."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from service.contract.manifest import Manifest
from service.errors import InvalidArgument
from service.serving.tasks.texts import (
    MAX_NAMED_WORDS,
    MAX_WORD_CHARACTERS,
    WORD_VECTORS,
    similarity,
)
from service.text.tokenizer import TextTokenizer
from tests.fakes.sessions import SPECIAL, embedder_manifest, write_tokenizer


@dataclass
class Model:
    """An embedder of word vectors."""

    tokenizer: TextTokenizer
    manifest: Manifest
    name: str = "words"


@pytest.fixture
def model(tmp_path: Path) -> Model:
    path = tmp_path / "tokenizer.json"
    write_tokenizer(path)
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(path))
    return Model(TextTokenizer(path, 100, 10_000), embedder_manifest(max_tokens=100))


def check(model: Model, *texts: str) -> None:
    WORD_VECTORS.check(model, texts, model.tokenizer.encode(texts, can_truncate=False))


def test_a_text_with_a_known_word_has_a_vector(model: Model) -> None:
    check(model, "win", "blarg win", "prize glimp blarg")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no words, and the model has vectors of words"),
        ("blarg", "has no word that the model knows: unknown word 'blarg'"),
        ("glimp blarg glimp", "has no word that the model knows: unknown words 'glimp', 'blarg'"),
    ],
)
def test_a_text_without_a_known_word_is_refused_with_its_words(
    model: Model, text: str, reason: str
) -> None:
    """Each of them once."""
    with pytest.raises(InvalidArgument) as refused:
        check(model, "win", text)
    assert str(refused.value) == f"text 1 {reason}"


@pytest.mark.parametrize("num_more", [0, 1, 3])
def test_no_more_than_some_words_are_named(model: Model, num_more: int) -> None:
    words = [f"blarg{number}" for number in range(MAX_NAMED_WORDS + num_more)]
    with pytest.raises(InvalidArgument) as refused:
        check(model, " ".join(words))
    named, _, more = str(refused.value).partition(" and ")
    assert re.findall(r"'(\w+)'", named) == words[:MAX_NAMED_WORDS]
    assert more == (f"{num_more} more" if num_more else "")


def test_of_a_long_word_the_beginning_is_named(model: Model) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check(model, "x" * (MAX_WORD_CHARACTERS + 1))
    assert f"'{'x' * MAX_WORD_CHARACTERS}'" in str(refused.value)


def test_texts_are_as_alike_as_their_vectors() -> None:
    """Of [3, 4] and [0, 2]: the angle's cosine is 0.8, the product 8, over the root of 2 values."""
    texts, others = np.array([[3, 4]], np.float32), np.array([[0, 2], [3, 4]], np.float32)
    assert similarity("cosine", texts, others)[0].tolist() == pytest.approx([0.8, 1.0])
    assert similarity("dot", texts, others).tolist() == [[8, 25]]
    scaled = similarity("scaled_dot", texts, others)
    assert scaled[0].tolist() == pytest.approx([8 / 2**0.5, 25 / 2**0.5])
    assert scaled.dtype == np.float32


def test_texts_are_the_less_alike_the_further_apart_they_are() -> None:
    """From [3, 4] to [0, 0] are 5, and 3 + 4 along the axes."""
    texts, others = np.array([[3, 4]], np.float32), np.array([[0, 0], [3, 4]], np.float32)
    assert similarity("euclidean", texts, others).tolist() == [[-5.0, 0.0]]
    assert similarity("manhattan", texts, others).tolist() == [[-7.0, 0.0]]
    for measure in ("euclidean", "manhattan"):
        none = similarity(measure, texts[:0], others)
        assert (none.shape, none.dtype.name) == ((0, 2), "float32")
