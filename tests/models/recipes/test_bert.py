"""BERT's pretraining: the published proportions on real batches, and what is learnt of them."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from torch.nn import functional as F
from typer.testing import Result

from export.checks.parity import GraphRunner, pad
from export.graphs.graph import trace
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.checkpoints.families import FAMILIES
from models.data.corpus import Corpus, TextFile
from models.data.masking import UNCHOSEN, Batch, MaskedPairs
from models.data.sentence_pairs import (
    FOLLOWS,
    IS_ELSEWHERE,
    Pairs,
    Sentences,
    sentences_of,
    shortened,
)
from models.data.word_pieces import SPECIAL, SpecialTokens, train_word_pieces
from models.errors import CheckpointError, DatasetError, SettingError
from models.networks.heads import SequenceClassifier
from models.networks.masked import MaskedLanguageModel
from models.recipes.bert import PRESETS, PRETRAINING, config_of, masked_language, outcome_of
from models.recipes.bert_settings import SIZES, BertSettings
from models.recipes.finetune import classifier_from
from models.recipes.pretrain import pretrain
from tests.models.checkpoints.test_huggingface import BERT_SIZES, NO_SPECIAL_TOKENS, WINDOWS

PAD, UNKNOWN, FIRST, SEPARATOR, MASK = range(5)
SETTINGS = BertSettings(
    num_layers=2,
    hidden_size=32,
    num_heads=2,
    context=24,
    vocab_size=80,
    steps=6,
    batch_size=4,
    learning_rate=1e-2,
    evaluate_every=3,
    precision="off",
)
NUM_DEVIATIONS = 4.5  # of a binomial: less than one seed in 100,000 is further off
NUM_PAIRS = 600


def document(number: int) -> str:
    """Sentences that name their own number, so that one knows where a piece is from."""
    words = ("cat", "dog", "hen", "owl", "fox")
    animal = words[number % len(words)]
    return " ".join(f"the {animal} number {number} sat on mat {place}." for place in range(30))


DOCUMENTS = tuple(map(document, range(20)))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus((TextFile("mats.txt", 1, "", DOCUMENTS),), DOCUMENTS[:17], DOCUMENTS[17:])


@pytest.fixture(scope="module")
def pieces(corpus: Corpus) -> Tokenizer:
    return train_word_pieces(corpus.train, SETTINGS.vocab_size)


@pytest.fixture(scope="module")
def pairs(pieces: Tokenizer) -> Pairs:
    return Pairs(Sentences.of(DOCUMENTS, pieces), 61, "3")


@pytest.fixture(scope="module")
def masked_pairs(pairs: Pairs, pieces: Tokenizer) -> MaskedPairs:
    return MaskedPairs(pairs, SpecialTokens.of(pieces), pieces.get_vocab_size(), 0.15)


@pytest.fixture(scope="module")
def batches(masked_pairs: MaskedPairs) -> list[Batch]:
    return [masked_pairs.batch(first, 20) for first in range(0, NUM_PAIRS, 20)]


def is_about(count: int, share: float, total: int) -> bool:
    deviation = math.sqrt(total * share * (1 - share))
    return abs(count - share * total) < NUM_DEVIATIONS * deviation


def test_of_the_words_15_percent_are_chosen_and_no_special_token(batches: list[Batch]) -> None:
    """In every row by itself, rounded, and at least one."""
    for batch in batches:
        rows = zip(batch.input_ids, batch.attention_mask, batch.targets, strict=True)
        for seen, mask, targets in rows:
            was = torch.where(targets == UNCHOSEN, seen, targets)[mask == 1]
            num_words = int((was > MASK).sum())
            assert int((targets != UNCHOSEN).sum()) == max(1, round(0.15 * num_words))
            assert int(targets[targets != UNCHOSEN].min()) > MASK


def test_of_the_chosen_80_percent_are_masked_10_replaced_and_10_stay(batches: list[Batch]) -> None:
    """Counted on 600 pairs, some 4,700 chosen tokens.

    One replacement in as many as there are words is by chance the token itself, and counts as one
    that stays.
    """
    seen = torch.cat([batch.input_ids[batch.targets != UNCHOSEN] for batch in batches])
    right = torch.cat([batch.targets[batch.targets != UNCHOSEN] for batch in batches])
    total = len(right)
    assert total > 4_000
    num_masked, num_same = int((seen == MASK).sum()), int((seen == right).sum())
    assert is_about(num_masked, 0.8, total)
    assert is_about(num_same, 0.1 + 0.1 / 75, total)
    assert is_about(total - num_masked - num_same, 0.1 - 0.1 / 75, total)
    replaced = seen[(seen != MASK) & (seen != right)]
    assert int(replaced.min()) > MASK
    assert len(set(replaced.tolist())) > 60  # of 75 words


def test_what_was_not_chosen_is_as_it_was(masked_pairs: MaskedPairs, pairs: Pairs) -> None:
    batch = masked_pairs.batch(0, 20)
    for number, (seen, targets) in enumerate(zip(batch.input_ids, batch.targets, strict=True)):
        pair = pairs[number]
        was = torch.where(targets == UNCHOSEN, seen, targets).tolist()
        whole = [FIRST, *pair.first, SEPARATOR, *pair.second, SEPARATOR]
        assert was == whole + [PAD] * (len(was) - len(whole))
        types = [0] * (len(pair.first) + 2) + [1] * (len(pair.second) + 1)
        assert batch.token_type_ids[number].tolist() == types + [0] * (len(was) - len(whole))
        assert batch.attention_mask[number].sum() == len(whole)


def test_half_of_the_pairs_follow_and_the_others_are_of_another_document() -> None:
    """With the place of each token as its id, so that it says where it is from."""
    starts = np.arange(0, 1_001, 5)
    documents = np.arange(0, 201, 20)
    placed = Pairs(Sentences(np.arange(1_000), starts, documents), 61, "3")
    found = Counter[int]()
    for number in range(NUM_PAIRS):
        pair = placed[number]
        found[pair.relation] += 1
        whole = np.concatenate([pair.first, pair.second])
        assert 2 <= len(whole) <= 61
        assert (np.diff(pair.first) == 1).all()
        if pair.relation == FOLLOWS:
            assert (np.diff(whole) == 1).all()
            assert len(set(whole // 100)) == 1, "one document"
        else:
            assert (np.diff(pair.second) == 1).all()
            assert len(set(pair.second // 100)) == 1, "it ends where its document does"
            assert pair.second[0] // 100 != pair.first[0] // 100
            assert pair.second[0] % 5 == 0, "the beginning of a sentence"
    assert is_about(found[FOLLOWS], 0.5, NUM_PAIRS)
    assert found[FOLLOWS] + found[IS_ELSEWHERE] == NUM_PAIRS


def test_a_second_text_of_short_documents_ends_where_its_document_ends() -> None:
    """Of 40 documents of 10 tokens and one of 200, pairs of 61 tokens: the long one is found."""
    starts = np.arange(0, 601, 5)
    documents = np.array([*range(0, 81, 2), 120])
    placed = Pairs(Sentences(np.arange(600), starts, documents), 61, "3")
    ends = starts[documents]
    num_elsewhere = 0
    for number in range(NUM_PAIRS):
        pair = placed[number]
        for text in (pair.first, pair.second):
            assert len(text) > 0
            assert (np.diff(text) == 1).all()
            first, last = np.searchsorted(ends, text[[0, -1]], side="right")
            assert first == last, "one document"
        if pair.relation == IS_ELSEWHERE:
            num_elsewhere += 1
            assert pair.second[0] % 5 == 0, "the beginning of a sentence"
    assert is_about(num_elsewhere, 0.5, NUM_PAIRS)


def test_lengths_do_not_tell_the_relation(pairs: Pairs) -> None:
    """The mean length of second texts is alike, to a few standard errors."""
    lengths: dict[int, list[int]] = {FOLLOWS: [], IS_ELSEWHERE: []}
    for number in range(NUM_PAIRS):
        lengths[pairs[number].relation].append(len(pairs[number].second))
    follows, elsewhere = (np.array(found) for found in lengths.values())
    error = math.sqrt(follows.var() / len(follows) + elsewhere.var() / len(elsewhere))
    assert abs(follows.mean() - elsewhere.mean()) < NUM_DEVIATIONS * error


def test_a_tenth_of_the_pairs_is_short(pairs: Pairs) -> None:
    """Of the others all are full, as every document is longer than a pair."""
    lengths = [len(pairs[n].first) + len(pairs[n].second) for n in range(NUM_PAIRS)]
    full = max(lengths)
    assert full == 61
    assert is_about(sum(length < full for length in lengths), 0.1, NUM_PAIRS)


@pytest.mark.parametrize(
    ("lengths", "wanted", "expected"),
    [
        ((5, 5), 10, (5, 5)),
        ((9, 3), 10, (7, 3)),
        ((3, 9), 10, (3, 7)),
        ((20, 2), 4, (2, 2)),
        ((9, 9), 5, (3, 2)),
        ((1, 9), 2, (1, 1)),
    ],
)
def test_the_longer_text_is_shortened_first(
    lengths: tuple[int, int], wanted: int, expected: tuple[int, int]
) -> None:
    assert shortened(*lengths, wanted) == expected


def test_one_document_has_pairs_too_and_single_sentences_have_none(pieces: Tokenizer) -> None:
    alone = Pairs(Sentences.of(DOCUMENTS[:1], pieces), 30, "0")
    assert {alone[number].relation for number in range(20)} == {FOLLOWS, IS_ELSEWHERE}
    with pytest.raises(DatasetError, match="no document has two sentences"):
        Sentences.of(["the cat sat.", "the dog ran."], pieces)


def test_sentences_end_at_marks_and_lines() -> None:
    assert sentences_of("Is it? Yes! It is 3.5 of them.\n\nA title\nthe end") == [
        "Is it?",
        "Yes!",
        "It is 3.5 of them.",
        "A title",
        "the end",
    ]


def test_the_loss_is_of_chosen_tokens_and_relations_only(
    pieces: Tokenizer, masked_pairs: MaskedPairs
) -> None:
    """By hand from all scores; a wish that was not chosen changes neither loss nor gradients."""
    torch.manual_seed(0)
    model = built(pieces).eval()
    batch = masked_pairs.batch(0, 5)
    outcome = outcome_of(model, batch)

    hidden = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)[-1]
    words = F.cross_entropy(
        model.scores(hidden).flatten(0, 1), batch.targets.flatten(), ignore_index=UNCHOSEN
    )
    assert model.next_sentence is not None
    relation = F.cross_entropy(model.next_sentence(hidden), batch.relations)
    torch.testing.assert_close(outcome.loss, words + relation)
    assert len(outcome.scores) == int((batch.targets != UNCHOSEN).sum())


def built(pieces: Tokenizer) -> MaskedLanguageModel:
    settings = replace(SETTINGS, context=64)
    model = PRETRAINING.build(PRETRAINING.config_of(settings, pieces), pieces)
    assert isinstance(model, MaskedLanguageModel)
    return model


def test_a_judgement_is_of_all_words_and_pairs_whatever_the_batches(
    corpus: Corpus, pieces: Tokenizer
) -> None:
    """By hand from one batch of all 20 held-out pairs, and in batches of 3, the last one of 2."""
    torch.manual_seed(0)
    model = built(pieces).eval()
    settings = replace(SETTINGS, batch_size=3, validation_windows=20)
    objective = masked_language(corpus, pieces, config_of(SETTINGS, pieces), settings)
    assert objective.num_held_out == 20
    with torch.inference_mode():
        judged = objective.judge(model)
        whole = outcome_of(model, objective.held_out.batch(0, 20))
    assert judged.loss == pytest.approx(whole.loss.item(), rel=1e-5)
    words = F.cross_entropy(whole.scores, whole.targets).item()
    assert judged.figures["masked_perplexity"] == pytest.approx(math.exp(words), rel=1e-5)
    for name, scores, targets in (
        ("masked_accuracy", whole.scores, whole.targets),
        ("next_sentence_accuracy", whole.relation_scores, whole.relations),
    ):
        num_right = int((scores.argmax(dim=1) == targets).sum())
        assert judged.figures[name] == pytest.approx(num_right / len(targets))
    commonest = max(Counter(whole.targets.tolist()).values())
    assert judged.figures["commonest_word_accuracy"] == commonest / len(whole.targets)


def test_words_are_learnt_from_what_stands_around_them() -> None:
    """Each document has two words of its own, of ten: half of the masks can be known, no more."""
    topics = ("cat mew", "dog bark", "hen cluck", "owl hoot", "fox howl")
    source = random.Random(0)  # noqa: S311
    documents = tuple(
        "\n".join(" ".join(source.choices(topic.split(), k=6)) for _ in range(12))
        for topic in topics * 4
    )
    corpus = Corpus((TextFile("topics.txt", 1, "", documents),), documents, documents)
    pieces = train_word_pieces(documents, 80)
    settings = replace(
        SETTINGS, num_layers=1, steps=120, batch_size=16, learning_rate=5e-3, evaluate_every=40
    )
    result = pretrain(PRETRAINING, corpus, pieces, settings)
    best = result.progress.best
    assert best is not None
    assert best.figures["masked_accuracy"] > 0.35 > 0.2 > best.figures["commonest_word_accuracy"]
    checkpoint = result.checkpoint
    assert checkpoint.task == "fill-mask"
    assert checkpoint.metrics["validation_masked_accuracy"] == best.figures["masked_accuracy"]
    assert re.search(r"\[\w+\]", best.sample), "a word that it knew"


def test_sizes_are_those_published_with_single_replacements(pieces: Tokenizer) -> None:
    assert set(PRESETS) == set(SIZES)
    vocab_size = pieces.get_vocab_size()
    for name in SIZES:
        config = config_of(BertSettings(size=name), pieces)
        assert config == replace(PRESETS[name](), vocab_size=vocab_size, dropout=0.0)
        assert config.hidden_size == 64 * config.num_heads
    other = config_of(SETTINGS, pieces)
    assert (other.num_layers, other.hidden_size, other.max_positions) == (2, 32, 24)
    assert other.intermediate_size == 128


def test_the_form_of_modernbert_is_that_of_transformers(pieces: Tokenizer) -> None:
    """Of base, as it is published; the longest text is BERT's, as no longer ones are learnt."""
    published = FAMILIES["modernbert"]
    values = {**published.defaults, "vocab_size": pieces.get_vocab_size(), "pad_token_id": 0}
    expected = published.config({**values, "max_position_embeddings": 512})
    config = config_of(BertSettings(size="base", form="modernbert"), pieces)
    assert config == expected
    large = config_of(BertSettings(size="large", form="modernbert"), pieces)
    assert (large.num_layers, large.intermediate_size, large.num_heads) == (28, 2_624, 16)
    short = config_of(BertSettings(form="modernbert"), pieces)
    assert (short.intermediate_size, short.windows, short.max_positions) == (352, (0, 0), 64)


def test_modernberts_form_learns_is_fine_tuned_and_exported(
    corpus: Corpus, pieces: Tokenizer, tmp_path: Path
) -> None:
    """Texts of up to 72 tokens, so that windows of 64 to each side leave some out."""
    settings = replace(SETTINGS, form="modernbert", context=72, steps=12)
    trained = pretrain(PRETRAINING, corpus, pieces, settings)
    first, *_, last = trained.progress.measurements
    assert last.figures["masked_perplexity"] < first.figures["masked_perplexity"]
    save_checkpoint(trained.checkpoint, tmp_path / "own")
    model, _ = classifier_from(load_checkpoint(tmp_path / "own"), ("ham", "spam"))
    assert isinstance(model, SequenceClassifier)
    assert model.config.windows == (0, 64)
    rows = [[2, *range(5, 74), 3], [2, 9, 3]]
    run = GraphRunner(trace(model.eval(), "Attention"))
    with torch.inference_mode():
        expected = [model(torch.tensor([row]), torch.ones(1, len(row))).numpy() for row in rows]
    np.testing.assert_allclose(run(pad(rows, 0)), np.concatenate(expected), rtol=0, atol=1e-4)


def test_word_pieces_are_the_same_each_time_and_compose_words() -> None:
    texts = [f"walking talker {letter}x and words, Naïve" for letter in "abcdefghij"]
    first, second = (train_word_pieces(texts, 90) for _ in range(2))
    assert first.to_str() == second.to_str()
    assert tuple(first.id_to_token(index) for index in range(5)) == SPECIAL
    encoding = first.encode("talking [MASK] ☃", "and")
    assert encoding.tokens[0] == "[CLS]"
    assert "[MASK]" in encoding.tokens
    assert "[UNK]" in encoding.tokens
    assert encoding.type_ids == [0] * (len(encoding) - 2) + [1, 1]
    assert first.decode(first.encode("Talking NAÏVE").ids) == "talking naive"
    cased = train_word_pieces(texts, 90, lowercase=False)
    assert cased.decode(cased.encode("Naïve").ids) == "Naïve"


def test_a_tokenizer_without_a_mask_is_refused(corpus: Corpus, tokenizer: Tokenizer) -> None:
    """The one of other tests has no [MASK]."""
    with pytest.raises(CheckpointError, match=r"the tokenizer has no token \[MASK\]"):
        pretrain(PRETRAINING, corpus, tokenizer, SETTINGS)


def test_the_command_trains_fills_and_is_fine_tuned_from(
    run: Callable[..., Result], tmp_path: Path, as_tsv: object
) -> None:
    """A tokenizer is trained the first time and given the second; then a classifier is made."""
    text = tmp_path / "mats.txt"
    text.write_text("\f".join(DOCUMENTS))
    sizes = ("--num-layers", "1", "--hidden-size", "32", "--num-heads", "2", "--context", "24")
    command = ("pretrain", "bert", "--corpus", text, *sizes, "--steps", "4", "--batch-size", "4")
    first = run(*command, "--output", tmp_path / "first", "--vocab-size", "300")
    assert first.exit_code == 0, first.output
    assert "masked accuracy" in first.output
    assert "validation next sentence accuracy" in first.output
    names = {path.name for path in (tmp_path / "first").iterdir()}
    assert names == {
        *("config.json", "model.safetensors", "tokenizer.json"),
        *("training.json", "loss.png"),
    }
    given = ("--tokenizer", tmp_path / "first")
    second = run(*command, "--output", tmp_path / "second", *given)
    assert second.exit_code == 0, second.output
    checkpoints = [load_checkpoint(tmp_path / name) for name in ("first", "second")]
    assert checkpoints[0].tokenizer.to_str() == checkpoints[1].tokenizer.to_str()

    data = tmp_path / "data.tsv"
    data.write_text("".join(f"{'ham' if n % 2 else 'spam'}\tcat {n}\n" for n in range(20)))
    tuned = run(
        *("train", data, "--from", tmp_path / "first", "--output", tmp_path / "tuned"),
        *("--epochs", "1"),
    )
    assert tuned.exit_code == 0, tuned.output
    assert load_checkpoint(tmp_path / "tuned").task == "text-classification"


@pytest.fixture(scope="module")
def trained(corpus: Corpus, pieces: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a checkpoint; not to be changed."""
    folder = tmp_path_factory.mktemp("trained") / "first"
    save_checkpoint(pretrain(PRETRAINING, corpus, pieces, SETTINGS).checkpoint, folder)
    return folder


def test_training_goes_on_from_a_checkpoint(
    corpus: Corpus, pieces: Tokenizer, trained: Path
) -> None:
    """With a fresh head for next sentences where it has none; what it came from stays as it was."""
    start = load_checkpoint(trained)
    model = start.model
    assert isinstance(model, MaskedLanguageModel)
    model.next_sentence = None
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    still = replace(SETTINGS, steps=1, learning_rate=1e-8, weight_decay=0.0)
    gone_on = pretrain(PRETRAINING, corpus, pieces, still, start=start).checkpoint
    assert isinstance(gone_on.model, MaskedLanguageModel)
    assert gone_on.model.next_sentence is not None
    assert gone_on.origin == "trained on mats.txt, then trained on mats.txt"
    for name, weight in before.items():
        assert torch.equal(model.state_dict()[name], weight)
        torch.testing.assert_close(gone_on.model.state_dict()[name], weight, atol=1e-6, rtol=0)


def test_training_goes_on_from_an_imported_modernbert(
    corpus: Corpus, pieces: Tokenizer, tmp_path: Path
) -> None:
    """With windows and ropes as they were, on pairs shorter than the 64 tokens that it reads."""
    torch.manual_seed(2)
    sizes = {**BERT_SIZES, **NO_SPECIAL_TOKENS, **WINDOWS, "vocab_size": pieces.get_vocab_size()}
    config = transformers.ModernBertConfig(**sizes | {"max_position_embeddings": 64})
    transformers.ModernBertForMaskedLM(config).save_pretrained(tmp_path)
    pieces.save(str(tmp_path / "tokenizer.json"))
    start = load_checkpoint(tmp_path)
    settings = replace(SETTINGS, num_layers=None, hidden_size=None, num_heads=None, steps=12)
    trained = pretrain(PRETRAINING, corpus, pieces, settings, start=start)
    assert trained.objective.tokens_per_window == 24
    assert trained.checkpoint.config == start.config
    assert (start.config.windows, start.config.max_positions) == ((0, 4, 0), 64)
    first, *_, last = trained.progress.measurements
    assert last.figures["masked_perplexity"] < first.figures["masked_perplexity"]
    with pytest.raises(SettingError, match="context is 65, but must be at most what the"):
        pretrain(PRETRAINING, corpus, pieces, replace(settings, context=65), start=start)


def test_the_command_goes_on_and_refuses_what_the_checkpoint_decides(
    run: Callable[..., Result], trained: Path, tmp_path: Path, gpt_checkpoint: Checkpoint
) -> None:
    text = tmp_path / "mats.txt"
    text.write_text("\f".join(DOCUMENTS))
    command = ("pretrain", "bert", "--corpus", text, "--steps", "2", "--batch-size", "4")
    on = (*command, "--from", trained, "--output", tmp_path / "second", "--context", "20")
    result = run(*on)
    assert result.exit_code == 0, result.output
    assert load_checkpoint(tmp_path / "second").config == load_checkpoint(trained).config

    refused = run(*on, "--hidden-size", "64")
    assert refused.exit_code == 2
    assert "--hidden-size" in refused.output
    assert "64 is not allowed, it must be left out: " in refused.output
    save_checkpoint(gpt_checkpoint, tmp_path / "gpt")
    refused = run(*command, "--from", tmp_path / "gpt", "--output", tmp_path / "third")
    assert refused.exit_code == 1
    assert "holds the network gpt, but must hold encoder-masked-words" in refused.output
