"""Skip-gram with negative sampling: its parts counted and computed by hand, its vectors asked."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import nn
from typer.testing import CliRunner

from commands.train.words import words
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from models.data.vocabulary import SPECIAL, train_word_tokenizer, words_of
from models.errors import DatasetError, SettingError
from models.recipes.initialise import initialise_words
from models.recipes.neighbours import WordSpace, analogies, evaluate
from models.recipes.skip_gram import (
    SkipGram,
    SkipGramTrainer,
    WordStream,
    keep_probabilities,
    noise_weights,
    skip_gram_pairs,
    space_of,
    train_words,
)
from models.recipes.word_settings import WordSettings

PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
PETS, TOOLS = ("cat", "dog", "hamster", "rabbit"), ("hammer", "saw", "drill", "wrench")
SMALL = WordSettings(vector_size=16, epochs=40, window=3, subsample=1.0, learning_rate=0.02)


def planted_texts() -> list[str]:
    """Pets eat and sleep, tools cut and break: words of a group stand in the same places."""
    generator = random.Random(0)  # noqa: S311 - to reproduce
    texts = []
    for _ in range(300):
        pet, tool = generator.choice(PETS), generator.choice(TOOLS)
        texts += [f"my hungry {pet} sleeps", f"a rusty {tool} breaks"]
    return texts


def test_words_are_lower_case_with_their_apostrophes_and_without_punctuation() -> None:
    texts = ["Don't panic, don\u2019t!", "don't PANIC: don\u2019t"]
    tokenizer = train_word_tokenizer(texts, min_count=2)
    assert words_of(tokenizer) == [*SPECIAL, "don't", "don\u2019t", "panic"]
    found = tokenizer.encode("So, don\u2019t panic...")
    assert found.tokens == ["[CLS]", "[UNK]", "don\u2019t", "panic", "[SEP]"]
    assert tokenizer.encode("").tokens == ["[CLS]", "[SEP]"]


def test_too_few_words_are_refused() -> None:
    with pytest.raises(DatasetError, match="fewer than 2 words occur 5 times"):
        train_word_tokenizer(["one two three"], min_count=5)


def test_unknown_words_leave_the_stream_and_counts_are_of_the_rest() -> None:
    texts = ["a b a rare", "b a"]
    tokenizer = train_word_tokenizer(texts, min_count=2)
    stream = WordStream.read(texts, tokenizer)
    a, b = (tokenizer.token_to_id(word) for word in "ab")
    assert stream.ids.tolist() == [a, b, a, b, a]
    assert stream.text_numbers.tolist() == [0, 0, 0, 1, 1]
    assert stream.counts.tolist() == [0, 0, 0, 0, 3, 2]


def test_every_word_within_the_window_is_a_pair_both_ways_and_none_of_another_text() -> None:
    """Window 1: neighbours only. Texts 1 2 3 and 4 5."""
    ids, texts = torch.tensor([1, 2, 3, 4, 5]), torch.tensor([0, 0, 0, 1, 1])
    pairs = skip_gram_pairs(ids, texts, 1, torch.Generator().manual_seed(0))
    assert sorted(map(tuple, pairs.tolist())) == [(1, 2), (2, 1), (2, 3), (3, 2), (4, 5), (5, 4)]


def test_a_window_reaches_each_distance_equally_often() -> None:
    """Window 4 is drawn from 1 to 4, so distance d is reached with probability (5 - d) / 4."""
    num_words = 20_000
    ids, texts = torch.arange(num_words), torch.zeros(num_words)
    pairs = skip_gram_pairs(ids, texts, 4, torch.Generator().manual_seed(0))
    distances = (pairs[:, 1] - pairs[:, 0]).abs()
    for distance in range(1, 5):
        share = int((distances == distance).sum()) / (2 * num_words)
        assert share == pytest.approx((5 - distance) / 4, abs=0.01)


def test_frequent_words_are_left_out_by_the_published_probability() -> None:
    """Kept with sqrt(t / f): of frequency 0.9 at t = 0.001, 1 in 30; of 0.001, always."""
    kept = keep_probabilities(torch.tensor([900, 99, 1]), 1e-3)
    assert kept.tolist() == pytest.approx([math.sqrt(1 / 900), math.sqrt(1 / 99), 1.0])


def test_noise_is_drawn_by_frequency_to_the_power_of_three_quarters() -> None:
    """Counts 16 and 1 become weights 8 and 1; what has no count is never drawn."""
    counts = torch.tensor([0, 16, 1])
    assert noise_weights(counts, 0.75).tolist() == pytest.approx([0.0, 8 / 9, 1 / 9])
    stream = WordStream(torch.tensor([1, 2]), torch.tensor([0, 0]), counts)
    noise = SkipGramTrainer(stream, WordSettings()).noise(20_000)
    assert noise.shape == (20_000, 5)
    shares = torch.bincount(noise.flatten(), minlength=3) / noise.numel()
    assert shares.tolist() == pytest.approx([0.0, 8 / 9, 1 / 9], abs=0.01)


def test_the_loss_is_the_published_one() -> None:
    """-log s(u_o v_c) - sum log s(-u_n v_c), by hand for one pair and two noise words."""
    model = SkipGram(vocab_size=8, vector_size=2)
    with torch.no_grad():
        model.words.weight[5] = torch.tensor([1.0, 2.0])
        model.neighbours.weight[6] = torch.tensor([0.5, 0.5])  # product 1.5
        model.neighbours.weight[7] = torch.tensor([-1.0, 0.0])  # product -1
    wanted = sum(math.log(1 + math.exp(-score)) for score in (1.5, 1.0, -1.5))
    found = model(torch.tensor([[5, 6]]), torch.tensor([[7, 6]]))
    assert found.item() == pytest.approx(wanted)


def test_words_without_neighbours_teach_nothing() -> None:
    """Texts of one word have no pairs: no loss, and vectors that are numbers still."""
    trained = train_words(["cat", "dog"] * 10, WordSettings(vector_size=4, epochs=2), "alone")
    assert trained.epoch_losses == (0.0, 0.0)
    weights = trained.checkpoint.model.state_dict()["words.weight"]
    assert weights.isfinite().all()


def test_words_of_the_same_places_become_neighbours() -> None:
    trained = train_words(planted_texts(), SMALL, "planted")
    space = space_of(trained.checkpoint)
    for group in (PETS, TOOLS):
        for word in group:
            nearest = {found.word for found in space.nearest(word, len(group) - 1)}
            assert nearest == set(group) - {word}
    assert trained.epoch_losses[-1] < trained.epoch_losses[0]


@pytest.fixture(scope="module")
def vectors() -> Checkpoint:
    """Hardly trained; not to be changed."""
    return train_words(planted_texts(), WordSettings(vector_size=4, epochs=1), "").checkpoint


def test_the_same_seed_gives_the_same_vectors_and_leaves_the_global_state(
    vectors: Checkpoint,
) -> None:
    before = torch.get_rng_state()
    again = train_words(planted_texts(), WordSettings(vector_size=4, epochs=1), "").checkpoint
    weights = [each.model.state_dict()["words.weight"] for each in (vectors, again)]
    assert torch.equal(*weights)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def planted_space() -> WordSpace:
    """Royalty on one axis, sex on the other, for words of any length."""
    vectors = {
        "man": (0.0, 1.0, 0.1),
        "woman": (0.0, -1.0, 0.1),
        "king": (2.0, 1.0, 0.0),
        "queen": (2.0, -1.0, 0.0),
        "boy": (0.0, 1.0, 0.5),
        "girl": (0.0, -1.0, 0.5),
    }
    table = torch.tensor([*([(0.0, 0.0, 0.0)] * len(SPECIAL)), *vectors.values()])
    return WordSpace([*SPECIAL, *vectors], table)


def test_an_analogy_is_answered_by_adding_and_subtracting(planted_space: WordSpace) -> None:
    assert planted_space.analogy("king", "man", "woman", 1)[0].word == "queen"
    assert planted_space.analogy("woman", "girl", "boy", 1)[0].word == "man"
    answers = {found.word for found in planted_space.analogy("king", "man", "woman", 100)}
    assert answers == {"queen", "boy", "girl"}


def test_neighbours_are_by_angle_and_never_the_word_itself(planted_space: WordSpace) -> None:
    found = planted_space.nearest("man", 2)
    assert [neighbour.word for neighbour in found] == ["boy", "king"]
    assert found[0].cosine == pytest.approx((1.0 + 0.1 * 0.5) / math.sqrt(1.01 * 1.25))
    with pytest.raises(SettingError, match=r"'emperor'.*one of the 6 words"):
        planted_space.nearest("emperor", 1)


def test_only_what_the_vocabulary_knows_is_asked_and_counted(planted_space: WordSpace) -> None:
    """Man, woman, king, queen, boy and girl are three pairs of one relation: 3 * 2 questions."""
    known = {"man", "woman", "king", "queen", "boy", "girl"}
    asked = [question for question in analogies() if set(question) <= known]
    found = evaluate(planted_space)
    assert found.analogy_questions == len(asked) == 6
    assert found.analogy_among_5 == 1.0
    assert found.kind_questions == 2  # of these, "rank" has king and queen
    assert found.kind_among_5 == 1.0


@pytest.mark.parametrize(
    ("setting", "value"),
    [("vector_size", 0), ("window", 0), ("negatives", 0), ("subsample", 0.0), ("epochs", 0)],
)
def test_settings_have_limits(setting: str, value: float) -> None:
    values: dict[str, Any] = {setting: value}
    with pytest.raises(SettingError, match=setting):
        WordSettings(**values)


def test_the_command_trains_and_answers(tmp_path: Path) -> None:
    corpus, output = tmp_path / "pets.txt", tmp_path / "vectors"
    corpus.write_text("\n\n".join(planted_texts()))

    def run(*arguments: object) -> str:
        result = CliRunner(env=PLAIN).invoke(words, list(map(str, arguments)))
        assert result.exit_code == 0, result.output
        return result.output

    small = ("--vector-size", 16, "--epochs", 20, "--window", 3, "--subsample", 1)
    assert "kind among 5" in run("train", corpus, "--output", output, *small)
    assert {path.name for path in output.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "training.json",
        "loss.png",
    }
    checkpoint = load_checkpoint(output)
    assert (checkpoint.task, checkpoint.origin) == ("embedding", "skip-gram on pets.txt")
    assert "dog" in run("nearest", output, "cat", "saw")
    assert "cat - dog + saw" in run("analogy", output, "cat", "dog", "saw", "--count", 3)
    refused = CliRunner(env=PLAIN).invoke(words, ["nearest", str(output), "emperor"])
    assert refused.exit_code == 2
    assert "emperor" in refused.output
    misspelt = CliRunner(env=PLAIN).invoke(words, ["nearest", str(output), "Dogs"])
    assert "Invalid value for WORD: 'Dogs' is not allowed, it must be one of" in misspelt.output
    assert "words that have a vector; spelt alike are dog" in misspelt.output


def test_a_text_is_the_mean_of_its_known_words(vectors: Checkpoint) -> None:
    encodings = vectors.tokenizer.encode_batch(["cat unheard dog", "unheard", "cat"])
    ids = torch.zeros(3, 5, dtype=torch.int64)
    mask = torch.zeros(3, 5, dtype=torch.int64)
    for row, encoding in enumerate(encodings):
        ids[row, : len(encoding.ids)] = torch.tensor(encoding.ids)
        mask[row, : len(encoding.ids)] = 1
    table = vectors.model.state_dict()["words.weight"]
    cat, dog = (table[vectors.tokenizer.token_to_id(word)] for word in ("cat", "dog"))
    found = vectors.model(ids, mask)
    assert torch.allclose(found, torch.stack([(cat + dog) / 2, torch.zeros(4), cat]))


def test_a_network_takes_the_vectors_of_the_words_that_its_tokenizer_has(
    vectors: Checkpoint,
) -> None:
    """Directions are kept, the spread is as wanted; other tokens stay as they were."""
    vocabulary = {"[UNK]": 0, "cat": 1, "tiger": 2, "saw": 3}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))  # noqa: S106
    embedding = nn.Embedding(4, 4)
    before = embedding.weight.detach().clone()
    assert initialise_words(embedding, tokenizer, vectors, 0.1) == 2
    table, now = vectors.model.state_dict()["words.weight"], embedding.weight.detach()
    wanted = table[[vectors.tokenizer.token_to_id(word) for word in ("cat", "saw")]]
    assert torch.allclose(now[[1, 3]] / now[[1, 3]].std(), wanted / wanted.std(), atol=1e-5)
    assert now[[1, 3]].std() == pytest.approx(0.1)
    assert torch.equal(now[[0, 2]], before[[0, 2]])
    with pytest.raises(SettingError, match="vector_size is 4, but must be the network's"):
        initialise_words(nn.Embedding(4, 6), tokenizer, vectors, 0.1)
