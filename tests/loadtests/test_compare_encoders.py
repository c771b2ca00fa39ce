"""The comparison of embedders and rerankers, without peers."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from loadtests.compare import encoders, report
from loadtests.compare.agreement import scores_agree, vectors_agree
from loadtests.compare.comparison import Result, Side, check, compare_all
from loadtests.compare.encoders import ENCODER_TRAFFIC, ENCODERS, texts_of_real_lengths
from loadtests.compare.environments import Own
from loadtests.compare.models import Reference, reference_path
from loadtests.compare.peers import Program
from loadtests.compare.servers.apps.pooling import pooled
from loadtests.compare.traffic import EMBED, RERANK
from loadtests.compare.worker import Answer, Setup, Work
from loadtests.compare.workers.texts import reading
from loadtests.load.lengths import mixed_sizes
from loadtests.load.turns import Spread
from tests.checkpoints.spellings import save_tokenizer


def peer_of(task: str, precision: str) -> Program:
    return Program("fake", Own("own"), "fake", task, precision, "minilm")


def test_texts_have_the_lengths_of_messages_and_passages_and_no_blanks_alone() -> None:
    """As `mixed_sizes` draws them: a tenth is longer than 80 words."""
    texts = texts_of_real_lengths(128)
    words = [len(text.split()) for text in texts]
    assert len(set(texts)) > 120
    assert min(words) >= 1
    assert 5 <= sum(count >= 80 for count in words) <= 20
    assert texts == texts_of_real_lengths(128)


def test_traffic_of_both_tasks_is_texts_and_the_quick_one_has_fewer() -> None:
    for name, encoder in ENCODERS.items():
        (kind,) = ENCODER_TRAFFIC[name]
        full = kind.full(mixed_sizes)
        assert kind.quick is not None
        quick = kind.quick(mixed_sizes)
        assert full.amount == encoders.NUM_TEXTS[encoder.task]
        assert quick.texts == full.texts[: quick.amount]
        assert bool(full.query) == (encoder.task == RERANK)
        assert kind.task == encoder.task


VECTORS = np.random.default_rng(1).normal(size=(6, 8))


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_vectors_agree_at_any_length_and_float32_may_not_be_rounded(factor: float) -> None:
    exact = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    rounded = factor * (exact + 0.01 * np.random.default_rng(2).normal(size=exact.shape))
    assert not vectors_agree(exact, factor * exact, "float32").fault
    assert "float32 may differ" in vectors_agree(exact, rounded, "float32").fault
    agreement = vectors_agree(exact, rounded, "int8")
    assert not agreement.fault
    assert "correlation of similarities 0.99" in agreement.text


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (VECTORS[:3], "of shape"),
        (np.full_like(VECTORS, np.nan), "not finite"),
        (-VECTORS, "a mean cosine of 0.9"),
    ],
)
def test_vectors_of_another_model_are_a_fault_in_any_precision(found: np.ndarray, why: str) -> None:
    assert why in vectors_agree(VECTORS.tolist(), found.tolist(), "int8").fault


def test_scores_agree_by_their_correlation_and_exactly_in_float32() -> None:
    scores = np.linspace(0.1, 0.9, 9)[:, None]
    assert not scores_agree(scores, scores, "float32").fault
    assert "float32 may differ" in scores_agree(scores, scores + 0.01, "float32").fault
    assert not scores_agree(scores, scores + 0.01, "int8").fault
    assert "correlation -1" in scores_agree(scores, 1 - scores, "int8").fault
    assert "of shape" in scores_agree(scores, scores[1:], "int8").fault


def test_a_check_gives_the_texts_of_the_reference_with_their_query() -> None:
    works: list[Work] = []

    def run(work: Work) -> Answer:
        works.append(work)
        return Answer(1.0, [[0.25], [0.75]])

    reference = Reference([], [[0.25], [0.75]], [], [], texts=["a", "b"], query="q")
    assert not check(run, peer_of(RERANK, "float32"), reference).fault
    assert works[0].pairs == [("q", "a"), ("q", "b")]


class LengthsGraph:
    """Hidden states that hold a token's id, and the batches that were run."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []

    def __call__(self, feed: dict[str, np.ndarray]) -> np.ndarray:
        ids = feed["input_ids"]
        self.shapes.append(ids.shape)
        return np.stack([ids, np.ones_like(ids)], axis=-1).astype(np.float32)


def test_an_engine_of_tensors_is_given_sorted_batches_and_answers_in_order(
    tmp_path: Path,
) -> None:
    vocabulary = {f"w{number}": number for number in range(40)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))  # noqa: S106 - no secret
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    graph = LengthsGraph()
    setup = Setup(str(tmp_path), 1, "", "", {"pooling": "mean", "max_tokens": 6})
    texts = [" ".join(["w3"] * (1 + number % 5)) + f" w{number}" for number in range(20)]
    answer = reading(setup, ["input_ids"], graph)(Work([], 1, texts=texts))
    assert graph.shapes == [(16, 6), (4, 2)]
    for number, vector in enumerate(answer.outputs):
        mean = (3 * (1 + number % 5) + number) / (2 + number % 5)
        assert vector == pytest.approx(np.array([mean, 1]) / np.hypot(mean, 1))


def test_pooling_leaves_out_padding() -> None:
    hidden = np.array([[[3.0, 4.0], [100.0, 0.0]], [[0.0, 2.0], [4.0, 2.0]]])
    mask = np.array([[1, 0], [1, 1]])
    assert pooled(hidden, mask, "mean") == pytest.approx(np.array([[0.6, 0.8], [2**-0.5, 2**-0.5]]))
    assert pooled(hidden, mask, "cls") == pytest.approx(np.array([[0.6, 0.8], [0.0, 1.0]]))


def test_tables_for_the_documentation_have_each_engine_with_its_error(tmp_path: Path) -> None:
    (kind,) = ENCODER_TRAFFIC["minilm"]
    result = Result(kind.name, kind.what, EMBED, "peer", "float32")
    work = Work([], 1, texts=["a", "b"])

    def side(name: str, seconds: float) -> Side:
        return Side(name, lambda _: Answer(seconds, []), f"{name} agrees")

    sides = [side("attendant fp32", 1.0), side("attendant int8", 0.5), side("peer", 2.0)]
    compare_all(sides, {"peer": result}, work, 2)
    refused = Result(kind.name, kind.what, EMBED, "other", "int8", fault="no such model")
    for each in (result, refused):
        report.keep(each, tmp_path)
    assert report.ratios(result)["attendant int8"] == Spread(4.0, 4.0, 4.0)
    (file,) = report.published(report.kept(tmp_path))
    found = {(each.row, each.column): str(each) for each in file.figures}
    assert file.page == "Encoders beside other engines"
    assert found["attendant int8", "texts/s"] == "4"
    assert found["peer", "texts/s"] == "1"
    assert found["peer", "attendant fp32 over it"] == "2.00"
    assert found["peer", "attendant int8 over it"] == "4.00"
    for remark in ("attendant int8: attendant int8 agrees", "peer: peer agrees"):
        assert f"{kind.name}, {remark}" in file.notes
    assert f"{kind.name}, other: no such model" in report.remarks(report.kept(tmp_path))


def test_a_written_embedder_is_a_folder_of_sentence_transformers_with_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tiny = encoders.Encoder("tiny", "bert", EMBED, "cls", fields={**sizes, "intermediate_size": 32})
    monkeypatch.setitem(encoders.ENCODERS, "tiny", tiny)
    monkeypatch.setitem(encoders.NUM_TEXTS, EMBED, 3)
    save_tokenizer("bert", tmp_path / "bert-base")
    (tmp_path / "bert-base" / "vocab.txt").touch()
    encoders.write_encoder(tmp_path, "tiny")
    modules = json.loads((tmp_path / "tiny" / "modules.json").read_text())
    assert [each["type"].rpartition(".")[2] for each in modules] == [
        "Transformer",
        "Pooling",
        "Normalize",
    ]
    reference = Reference.read(reference_path(tmp_path, "tiny"))
    assert np.linalg.norm(reference.logits, axis=1) == pytest.approx(np.ones(3))
    assert reference.texts == texts_of_real_lengths(3)
