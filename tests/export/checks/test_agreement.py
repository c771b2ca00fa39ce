"""The cost of a precision without labelled texts: whether the answers stay the same."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from export.checks.agreement import (
    LEAST_AGREEMENT,
    MEASURES,
    SampleText,
    TextOutputs,
    check_agreement,
    sample_texts,
)
from export.errors import ExportError
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from models.data.datasets import Splits
from models.data.tagged import TaggedDataset, TaggedSentence
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import TextEmbedder
from models.networks.readers import QuestionAnswerer, TokenClassifier
from models.recipes.finetune import finetune_by
from models.recipes.tagging import TOKEN_CLASSIFICATION
from models.training.settings import TrainingSettings
from tests.fakes.sessions import SPECIAL, WORDS, write_tokenizer
from tests.fakes.tiny import tiny_classifier, tiny_config, tiny_embedder, tiny_tokenizer

IOB = ("O", "B-prize", "I-prize")


def outputs(*pairs: tuple[list[list[float]], list[list[float]]]) -> list[TextOutputs]:
    """Of texts whose every token is a word."""
    return [
        TextOutputs(
            SampleText([5] * len(found), [0] * len(found), list(range(len(found)))),
            np.array(found, np.float32),
            np.array(wanted, np.float32),
        )
        for found, wanted in pairs
    ]


def one_hot(*tags: str) -> list[list[float]]:
    return [[float(tag == label) for label in IOB] for tag in tags]


def test_labels_are_compared_text_by_text() -> None:
    found = outputs(([[0.1, 0.9]], [[0.4, 0.6]]), ([[0.6, 0.4]], [[0.4, 0.6]]))
    assert MEASURES["text-classification"](found, ()) == {"same_labels": 0.5}


def test_entities_are_the_same_where_type_and_words_are() -> None:
    """Of three entities float32 found, the graph has two, one of them a word shorter."""
    wanted = one_hot("B-prize", "I-prize", "O", "B-prize"), one_hot("O", "B-prize")
    found = one_hot("B-prize", "O", "O", "B-prize"), one_hot("O", "O")
    figures = MEASURES["token-classification"](outputs(*zip(found, wanted, strict=True)), IOB)
    assert figures == {
        "entities_compared": 3,
        "same_tags": pytest.approx(4 / 6),
        "same_entities": 0.0,
        "entity_f1": pytest.approx(2 * 1 / (2 + 3)),
    }


def test_texts_without_entities_agree_that_there_are_none() -> None:
    nothing = one_hot("O", "O")
    figures = MEASURES["token-classification"](outputs((nothing, nothing)), IOB)
    assert (figures["entities_compared"], figures["entity_f1"]) == (0, 1.0)


def test_the_first_word_for_each_mask_is_compared() -> None:
    found = outputs(([[1, 2], [2, 1]], [[1, 3], [1, 2]]), ([[0, 1]], [[0, 2]]))
    assert MEASURES["fill-mask"](found, ()) == {"same_words": pytest.approx(2 / 3)}


def test_the_nearest_other_text_is_compared() -> None:
    """Of four texts in two pairs; the graph takes the first to the other pair."""
    wanted = [[[1.0, 0.0]], [[0.9, 0.1]], [[0.0, 1.0]], [[0.1, 0.9]]]
    found = [[[-0.1, 1.0]], [[0.9, 0.1]], [[0.0, 1.0]], [[0.1, 0.9]]]
    figures = MEASURES["embedding"](outputs(*zip(found, wanted, strict=True)), ())
    assert figures == {"same_neighbours": 0.25}, "the last one's is as it was"


def test_answers_are_spans_of_the_context_or_none() -> None:
    """[CLS] question [SEP] a b [SEP]: `a b`, against `a`; and twice that there is none."""
    sample = SampleText([2, 9, 3, 7, 8, 3], [0, 0, 0, 1, 1, 1], [1, 3, 4])
    none = [[9.0, 9.0], *[[0.0, 0.0]] * 5]
    both = [*[[0.0, 0.0]] * 3, [5.0, 0.0], [0.0, 5.0], [0.0, 0.0]]
    one = [*[[0.0, 0.0]] * 3, [5.0, 5.0], [0.0, 0.0], [0.0, 0.0]]
    pairs = ((both, one), (none, none), (both, both), (none, both))
    compared = [
        TextOutputs(sample, np.array(found, np.float32), np.array(wanted, np.float32))
        for found, wanted in pairs
    ]
    assert MEASURES["question-answering"](compared, ()) == {"same_answers": 0.5}


def test_a_question_is_asked_of_its_own_context() -> None:
    tokenizer = tiny_tokenizer()
    network = QuestionAnswerer(Encoder(tiny_config()))
    text = "call now we are on lunch tomorrow free prize winner"
    (sample,) = sample_texts("question-answering", tokenizer, [text], 64, network)
    assert sample.ids == tokenizer.encode(" ".join(text.split()[:8]), text).ids
    assert set(sample.types) == {0, 1}
    (plain,) = sample_texts("token-classification", tokenizer, ["lunch oops"], 64, network)
    assert plain.first_tokens == [1, 2], "pieces of a word begin none"
    assert len(plain.ids) > 4


@pytest.mark.parametrize("name", LEAST_AGREEMENT)
def test_each_share_below_its_limit_is_refused_with_the_way_out(name: str) -> None:
    least = LEAST_AGREEMENT[name]
    check_agreement("int8", {"texts_compared": 160, name: least})
    said = rf"on 160 texts is {least - 0.01:.2f}, the limit is {least}: .*--precision int8"
    with pytest.raises(ExportError, match=said):
        check_agreement("int8", {"texts_compared": 160, name: round(least - 0.01, 5)})


# --- whole exports --------------------------------------------------------------------------------


def sentences() -> TaggedDataset:
    """`win` and `free` begin prizes, and `cash` goes on with one."""
    chosen = random.Random(0)  # noqa: S311 - to reproduce
    examples = []
    for line in range(80):
        words = chosen.choices(("sorry", "now", "the", "a", "later"), k=3)
        tags = ["O"] * len(words)
        place, length = chosen.randrange(3), chosen.randint(1, 2)
        words[place:place] = [chosen.choice(("win", "free")), "cash"][:length]
        tags[place:place] = ["B-prize", "I-prize"][:length]
        examples.append(TaggedSentence(line + 1, tuple(words), tuple(tags)))
    return TaggedDataset("prizes", tuple(examples))


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """Trained in seconds; it finds every prize."""
    path = tmp_path_factory.mktemp("tagger") / "tokenizer.json"
    write_tokenizer(path)
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_size": 32,
    }
    config = EncoderConfig(vocab_size=len(SPECIAL + WORDS), max_positions=16, **sizes)
    torch.manual_seed(0)
    base = Checkpoint(
        TextEmbedder(Encoder(config)).eval(),
        "embedding",
        (),
        Tokenizer.from_file(str(path)),
        16,
        "tiny",
    )
    train, validation = sentences().split([0.2], seed=0)
    settings = TrainingSettings(
        epochs=12, batch_size=16, learning_rate=1e-2, patience=12, precision="off"
    )
    tuned = finetune_by(TOKEN_CLASSIFICATION, base, Splits(train, validation), settings)
    assert tuned.evaluation.overall.f1 == 1.0
    return tuned.checkpoint


def like_a_close_call(checkpoint: Checkpoint) -> Checkpoint:
    """The same tags of every text, by differences of logits that 8 bits cannot tell.

    What all labels have in common moves none of them in float32, and makes up nearly all of the
    logits: their cosine with PyTorch's stays near 1.
    """
    network = checkpoint.model
    assert isinstance(network, TokenClassifier)
    output, common = network.output, torch.Generator().manual_seed(1)
    with torch.no_grad():
        output.weight.mul_(1e-4).add_(torch.randn(1, 16, generator=common))
        output.bias.mul_(1e-4).add_(30.0)
    return checkpoint


def texts_of(data: TaggedDataset) -> tuple[str, ...]:
    return tuple(sentence.text for sentence in data.examples)


def test_int8_stays_where_it_finds_the_same_entities(tagger: Checkpoint, tmp_path: Path) -> None:
    settings = ExportSettings("tags", tmp_path, "auto", calibration=texts_of(sentences()))
    folder, manifest = export_any(tagger, settings)
    parity = manifest.computed_in("int8").parity
    assert (folder / "model.int8.onnx").exists()
    assert parity["texts_compared"] == 20
    assert parity["entities_compared"] == 20
    assert parity["entity_f1"] == parity["same_entities"] == parity["same_tags"] == 1.0
    assert "entity_f1" not in manifest.parity, "float32 was compared with PyTorch itself"


def test_int8_that_changes_entities_is_left_out_though_its_cosine_is_near_1(
    tagger: Checkpoint, tmp_path: Path
) -> None:
    """Asked for by name it is written, and the manifest says how often it agrees."""
    network = like_a_close_call(replace(tagger))
    settings = ExportSettings("tags", tmp_path, "auto", calibration=texts_of(sentences()))
    folder, manifest = export_any(network, settings)
    assert not (folder / "model.int8.onnx").exists()
    assert "same entities as in float32 on 20 texts is 0." in manifest.left_out["int8"]
    _, manifest = export_any(network, replace(settings, precision="int8", name="named"))
    assert manifest.parity["mean_cosine"] > 0.995
    assert manifest.parity["entity_f1"] < 0.95


@pytest.mark.parametrize(
    ("checkpoint", "share"), [(tiny_classifier, "same_labels"), (tiny_embedder, "same_neighbours")]
)
def test_each_task_says_how_its_answers_agree(
    checkpoint: Callable[[], Checkpoint], share: str, tmp_path: Path
) -> None:
    _, manifest = export_any(checkpoint(), ExportSettings("any", tmp_path, "int8"))
    assert manifest.parity["texts_compared"] == 160
    assert 0.0 <= manifest.parity[share] <= 1.0
