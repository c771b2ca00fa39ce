"""ELMo: what each direction sees, what it learns, and that a word's vector knows its sentence."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from typer.testing import Result

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.data.generated.homographs import ASKED, MEANINGS, Occurrence, occurrences, sentences
from models.data.vocabulary import train_word_tokenizer
from models.errors import SettingError
from models.networks.elmo import DirectedLSTM, Elmo, ElmoConfig, ScalarMix
from models.recipes.elmo import Rows
from models.recipes.senses import cosines_of, senses_of, vectors_of
from models.recipes.word_settings import ElmoSettings

Run = Callable[..., Result]
VOCABULARY, SIZE = 20, 6


@pytest.fixture
def elmo() -> Elmo:
    torch.manual_seed(0)
    return Elmo(ElmoConfig(VOCABULARY, SIZE, num_layers=2)).eval()


def ragged(*lengths: int) -> tuple[Tensor, Tensor]:
    """Random right-padded rows and their mask."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, VOCABULARY, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return ids * mask, mask


def test_forwards_sees_only_what_came_before_and_backwards_only_what_follows(elmo: Elmo) -> None:
    """Token 3 of 6 changes: forward states from there on do, backward ones up to there."""
    ids, mask = ragged(6)
    changed = ids.clone()
    changed[0, 3] = (ids[0, 3] + 1) % VOCABULARY
    for layer in range(2):
        (before_f, before_b), (after_f, after_b) = (
            (states[layer][0] for states in elmo.directions(each, mask)) for each in (ids, changed)
        )
        is_same_f = (before_f == after_f).all(dim=1).tolist()
        is_same_b = (before_b == after_b).all(dim=1).tolist()
        assert is_same_f == [True, True, True, False, False, False]
        assert is_same_b == [False, False, False, False, True, True]


def test_a_row_in_a_batch_equals_the_row_alone(elmo: Elmo) -> None:
    """Rows of 7, 3, 1 and 5 tokens: padding has no effect, also on reading from the end."""
    lengths = (7, 3, 1, 5)
    ids, mask = ragged(*lengths)
    packed = elmo(ids, mask)
    assert packed.shape == (sum(lengths), 3, 2 * SIZE)
    for row, found in enumerate(packed.split(lengths)):
        n = lengths[row]
        alone = elmo(ids[row : row + 1, :n], mask[row : row + 1, :n])
        assert torch.allclose(found, alone, atol=1e-6)


def test_layers_are_those_of_plain_lstms_and_the_second_adds_to_the_first(elmo: Elmo) -> None:
    ids, mask = ragged(5)
    tokens = elmo.words(ids)
    first, second = (cast(DirectedLSTM, layer).lstm for layer in elmo.backwards.layers)
    low = first(tokens.flip(1))[0]
    high = second(low)[0] + low
    found = elmo(ids, mask)
    assert torch.allclose(found[:, 0], torch.cat([tokens[0], tokens[0]], dim=1))
    assert torch.allclose(found[:, 1, SIZE:], low.flip(1)[0], atol=1e-6)
    assert torch.allclose(found[:, 2, SIZE:], high.flip(1)[0], atol=1e-6)


def test_the_loss_is_of_the_next_token_forwards_and_the_one_before_backwards(elmo: Elmo) -> None:
    """Rows of 4 and 2 tokens have 3 + 1 such pairs, each predicted from either side."""
    ids, mask = ragged(4, 2)
    with torch.inference_mode():
        losses = elmo.losses(ids, mask)
        forwards, backwards = elmo.directions(ids, mask)
    assert losses.shape == (2, 4)
    pairs = [(0, 0), (0, 1), (0, 2), (1, 0)]
    for place, (row, left) in enumerate(pairs):
        scores = elmo.words.weight.detach() @ forwards[-1][row, left]
        assert losses[0, place] == pytest.approx(
            F.cross_entropy(scores, ids[row, left + 1]).item(), abs=1e-5
        )
        scores = elmo.words.weight.detach() @ backwards[-1][row, left + 1]
        assert losses[1, place] == pytest.approx(
            F.cross_entropy(scores, ids[row, left]).item(), abs=1e-5
        )


def test_a_mix_is_gamma_times_the_softmax_weighted_layers() -> None:
    mix = ScalarMix(3)
    states = torch.arange(12.0).view(2, 3, 2)
    assert torch.allclose(mix(states), states.mean(dim=1))
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, math.log(2.0), 0.0]))
        mix.scale.fill_(2.0)
    wanted = 2 * (states[:, 0] / 4 + states[:, 1] / 2 + states[:, 2] / 4)
    assert torch.allclose(mix(states), wanted)


def test_lines_are_rows_and_long_ones_are_cut_into_several() -> None:
    tokenizer = train_word_tokenizer(["a b c d e a b c d e"], 1, keeps_punctuation=True)
    rows = Rows.of(["a b\n\nc", "a b c d e"], tokenizer, context=4, seed=0)
    named = [[tokenizer.id_to_token(token) for token in row] for row in rows.rows]
    assert named == [
        ["[CLS]", "a", "b", "[SEP]"],
        ["[CLS]", "c", "[SEP]"],
        ["[CLS]", "a", "b", "[SEP]"],
        ["[CLS]", "c", "d", "[SEP]"],
        ["[CLS]", "e", "[SEP]"],
    ]


def test_every_epoch_has_every_row_once_in_another_order() -> None:
    tokenizer = train_word_tokenizer(["a b"] * 2, 1)
    rows = Rows.of(["\n".join(["a"] * 7 + ["b"] * 4)], tokenizer, context=8, seed=3)
    epochs = [
        [row for number in range(3) for row in rows.training_batch(3 * epoch + number, 4)[0]]
        for epoch in range(2)
    ]
    for epoch in epochs:
        assert len(epoch) == 11
        assert sum(int(row[1]) == tokenizer.token_to_id("b") for row in epoch) == 4
    assert not all(map(torch.equal, *epochs))


class UnhashableRow(tuple[int, ...]):
    """Fails code that reads all rows to find the order of an epoch again."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise AssertionError("a corpus is hashed")


def test_a_batch_costs_no_look_at_the_whole_corpus() -> None:
    rows = Rows(tuple(UnhashableRow((2, number, 3)) for number in range(4, 9)), 0)
    assert sorted(len(rows.training_batch(number, 4)[0]) for number in range(2)) == [1, 4]


def test_a_checkpoint_comes_back_as_it_was(elmo: Elmo, tmp_path: Path) -> None:
    tokenizer = train_word_tokenizer(["a b c"] * 2, 1)
    checkpoint = Checkpoint(elmo, "features", (), tokenizer, 100, "here")
    save_checkpoint(checkpoint, tmp_path / "elmo")
    loaded = load_checkpoint(tmp_path / "elmo")
    assert (loaded.task, loaded.max_tokens) == ("features", 100)
    assert isinstance(loaded.model, Elmo)
    assert torch.equal(loaded.model(*ragged(4, 2)), elmo(*ragged(4, 2)))


@pytest.mark.parametrize(
    ("setting", "value"), [("hidden_size", 0), ("num_layers", 0), ("context", 2), ("min_count", 0)]
)
def test_settings_have_limits(setting: str, value: int) -> None:
    values: dict[str, Any] = {setting: value}
    with pytest.raises(SettingError, match=setting):
        ElmoSettings(**values)


def test_what_is_asked_is_not_learnt_from() -> None:
    asked = {text.lower() for texts in ASKED.values() for pair in texts for text in pair}
    assert not asked & {sentence.removesuffix(" .") for sentence in sentences(5_000)}


def test_a_trained_model_tells_the_meanings_of_a_word_apart(run: Run, tmp_path: Path) -> None:
    """Of `train`, after seconds: a ride is nearer to another ride than to any exercise.

    Without context, in the lowest layer, all four are the same vector.
    """
    corpus, output = tmp_path / "homographs.txt", tmp_path / "elmo"
    corpus.write_text("\n".join(sentences(2_000)))
    small = ("--steps", 200, "--hidden-size", 48, "--learning-rate", 0.01, "--evaluate-every", 200)
    result = run("pretrain", "elmo", "--corpus", corpus, "--output", output, *small)
    assert result.exit_code == 0, result.output
    assert "backward perplexity" in result.output
    checkpoint = load_checkpoint(output)
    rides, sports = ASKED["train"]
    lowest, *layers = cosines_of(vectors_of(checkpoint, (*rides, *sports), "train"))
    assert torch.allclose(lowest, torch.ones(4, 4))
    for cosines in layers:
        assert cosines[0, 1] > cosines[:2, 2:].max()


def test_occurrences_are_unseen_and_half_of_each_meaning() -> None:
    seen = {sentence.removesuffix(" .") for sentence in sentences()}
    for word, meanings in MEANINGS.items():
        found = occurrences(word, 100)
        assert [sum(each.meaning == meaning for each in found) for meaning in meanings] == [50, 50]
        assert len({each.sentence for each in found}) == 100
        assert not {each.sentence for each in found} & seen
        assert all(each.sentence.split().count(word) == 1 for each in found)


def test_meanings_are_judged_by_nearest_vectors_from_other_patterns() -> None:
    """Four vectors, two of each meaning; the nearest of another pattern is right for two."""
    found = [
        Occurrence("", "vehicle", "a"),
        Occurrence("", "vehicle", "b"),
        Occurrence("", "sport", "c"),
        Occurrence("", "sport", "c"),
    ]
    angles = torch.tensor([0.0, 0.1, 1.0, 1.1])
    vectors = torch.stack([angles.cos(), angles.sin()], dim=1).unsqueeze(1)
    (cosines,) = cosines_of(vectors)
    senses = senses_of(cosines, found)
    assert senses.same_cosine == pytest.approx(math.cos(0.1))
    others = [math.cos(a) for a in (1.0, 1.1, 0.9, 1.0)]
    assert senses.other_cosine == pytest.approx(sum(others) / 4, abs=1e-6)
    assert senses.nearest_share == 0.5
