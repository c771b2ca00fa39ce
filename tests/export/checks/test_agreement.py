"""The cost of a precision without labelled texts: whether the answers stay the same."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer

from export.checks.agreement import (
    LEAST_AGREEMENT,
    MEASURES,
    SampleText,
    TextOutputs,
    check_agreement,
    measure_of,
    rank_correlation,
    sample_texts,
)
from export.errors import ExportError
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from models.data.datasets import Splits
from models.data.tagged import TaggedDataset, TaggedSentence
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import ClassificationHead, PairScorer, TextEmbedder
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


def test_several_labels_are_the_same_where_each_is() -> None:
    """A probability above 0.5 is a logit above 0; of four texts one gains a label."""
    measure = measure_of("text-classification", ("a", "b"), "sigmoid")
    assert measure is not None
    pairs = [
        ([[3.0, -1.0]], [[0.1, -9.0]]),
        ([[1.0, 0.1]], [[1.0, -0.1]]),
        ([[-1.0, -2.0]], [[-2.0, -1.0]]),
        ([[1.0, 2.0]], [[2.0, 1.0]]),
    ]
    assert measure(outputs(*pairs), ("a", "b")) == {"same_label_sets": 0.75}


@pytest.mark.parametrize(
    ("task", "labels", "function", "expected"),
    [
        ("pair-scoring", (), "identity", lambda logits: logits),
        ("pair-scoring", (), "", lambda logits: 1 / (1 + np.exp(-logits))),
        ("text-classification", ("quality",), "identity", lambda logits: logits),
        ("text-classification", ("one",), "sigmoid", lambda logits: 1 / (1 + np.exp(-logits))),
    ],
)
def test_scores_are_compared_by_their_correlation(
    task: str, labels: tuple[str, ...], function: str, expected: Any
) -> None:
    """Those that clients see, and by how much they differ."""
    wanted = np.array([-2.0, 0.5, 1.0, 3.0])
    found = np.array([-1.9, 0.7, 0.8, 3.1])
    pairs = [
        ([[one]], [[other]]) for one, other in zip(found.tolist(), wanted.tolist(), strict=True)
    ]
    measure = measure_of(task, labels, function)
    assert measure is not None
    ours, theirs = expected(found), expected(wanted)
    assert measure(outputs(*pairs), labels) == {
        "score_correlation": pytest.approx(np.corrcoef(ours, theirs)[0, 1], abs=1e-6),
        "mean_score_difference": pytest.approx(np.abs(ours - theirs).mean(), abs=1e-6),
        "max_score_difference": pytest.approx(np.abs(ours - theirs).max(), abs=1e-6),
    }


def test_of_several_numbers_the_least_correlation_counts() -> None:
    pairs = [([[i, -i]], [[i, i]]) for i in range(4)]
    measure = measure_of("text-classification", ("a", "b"), "identity")
    assert measure is not None
    figures = measure(outputs(*pairs), ("a", "b"))  # type: ignore[arg-type]
    assert figures["score_correlation"] == pytest.approx(-1.0)


def test_scores_that_are_all_alike_have_no_correlation() -> None:
    measure = measure_of("pair-scoring", (), "")
    assert measure is not None
    assert "score_correlation" not in measure(outputs(([[1.0]], [[1.0]]), ([[1.0]], [[1.0]])), ())


def test_half_of_the_pairs_are_of_a_text_with_its_own_beginning() -> None:
    tokenizer, texts = tiny_tokenizer(), ["lunch now", "free prize", "call tomorrow", "winner"]
    head = ClassificationHead(tiny_config().hidden_size, 1)
    network = PairScorer(Encoder(tiny_config()), head)
    samples = sample_texts("pair-scoring", tokenizer, texts, 64, network)
    pairs = [(0, 0), (1, 2), (2, 2), (3, 0)]
    expected = [tokenizer.encode(texts[one], texts[other]).ids for one, other in pairs]
    assert [sample.ids for sample in samples] == expected


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
    assert figures["same_neighbours"] == 0.25, "the last one's is as it was"
    assert figures["similarity_correlation"] < 0.9
    same = MEASURES["embedding"](outputs(*zip(wanted, wanted, strict=True)), ())
    assert same == {"same_neighbours": 1.0, "similarity_correlation": pytest.approx(1.0)}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_the_rank_correlation_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    """With equal values, which share a rank."""
    values, others = np.array(pairs, float).T
    correlation = rank_correlation(values, others)
    if len(set(values)) == 1 or len(set(others)) == 1:
        assert correlation == 0.0
    else:
        assert correlation == pytest.approx(stats.spearmanr(values, others).statistic)


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
    parity = manifest.of_graph("model.int8.onnx").parity
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
