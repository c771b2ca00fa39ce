"""Training on pairs: what is learnt in seconds, from what, and that it can be repeated."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import Result

from commands.train.seq2seq_runs import checkpoint_of
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.data.pairs import read_pairs
from models.data.tokens import TokenizedPairs
from models.errors import (
    DatasetError,
    ModelError,
    SettingError,
)
from models.networks.recurrent import FORMS as NETWORK_FORMS
from models.networks.recurrent import SCORES
from models.recipes.seq2seq import Trained, train
from models.recipes.seq2seq_settings import ATTENTIONS, FORMS, Seq2SeqSettings
from models.recipes.seq2seq_settings import NETWORKS as NAMES
from models.recipes.seq2seq_systems import NETWORKS, TASKS, network_for, prepare
from models.training.trainer import Listener, Session

SECONDS = Seq2SeqSettings(
    length=2, symbols=6, samples=14, test_samples=4, hidden_size=16, epochs=120, learning_rate=2e-2
)
FEW = replace(SECONDS, epochs=3)


def trained(settings: Seq2SeqSettings, session: Session | None = None) -> Trained:
    pairs, completed = prepare("reversal", settings)
    return train(pairs, NETWORKS[completed.network].load(), completed, session)


@pytest.mark.parametrize(
    ("attention", "form"),
    [
        *((attention, "luong") for attention in ("none", "dot", "multiplicative", "additive")),
        *((attention, "bahdanau") for attention in ("dot", "multiplicative", "additive")),
    ],
)
def test_two_symbols_are_reversed_after_seconds(attention: str, form: str) -> None:
    """14 of 36 pairs are learnt by heart in 120 steps, whatever the attention and its form."""
    result = trained(replace(SECONDS, attention=attention, form=form))
    assert result.network.config.form == form  # type: ignore[union-attr]
    assert result.train.exact == result.train.symbols == 1.0
    assert len(result.progress.measurements) == 120
    losses = result.progress.step_losses
    assert len(losses) == 120
    assert losses[-1] < 0.1 < 1.0 < losses[0]


def test_the_task_is_the_lectures() -> None:
    """4 of 10 symbols, 2,000 pairs to train on, 200 to test on, 16 units."""
    pairs, settings = prepare("reversal", Seq2SeqSettings())
    assert (len(pairs.train), len(pairs.test), settings.hidden_size) == (2_000, 200, 16)
    assert (settings.length, settings.symbols) == (4, 10)
    for source, target in (*pairs.train, *pairs.test):
        assert source.split() == target.split()[::-1]
        assert len(source.split()) == 4
    assert not set(pairs.train) & set(pairs.test)
    assert len({symbol for pair in pairs.train for symbol in pair.source.split()}) == 10


def test_the_seed_decides_the_pairs() -> None:
    first, again, other = (prepare("reversal", replace(FEW, seed=seed))[0] for seed in (1, 1, 2))
    assert first == again != other


class ThreadListener(Listener):
    """Notes on how many threads PyTorch computes at each step."""

    def __init__(self) -> None:
        self.counts: set[int] = set()

    def stepped(self, loss: float, advance: int = 1) -> None:
        self.counts.add(torch.get_num_threads())


@pytest.mark.parametrize(
    ("given", "num_threads"), [({}, 1), ({"network": "transformer", "num_layers": 1}, 2)]
)
def test_a_small_recurrent_network_learns_on_one_thread(
    given: dict[str, Any], num_threads: int, request: pytest.FixtureRequest
) -> None:
    """Of two; afterwards there are two again. Others compute on as many as there are."""
    request.addfinalizer(lambda: torch.set_num_threads(1))
    torch.set_num_threads(2)
    listener = ThreadListener()
    trained(replace(FEW, num_heads=2, **given), Session(listener=listener))
    assert listener.counts == {num_threads}
    assert torch.get_num_threads() == 2


def test_accuracy_counts_symbols_and_whole_targets() -> None:
    """The same as counting by hand what the network says."""
    result = trained(replace(FEW, epochs=12))
    network, tokenizer = result.network, result.tokenizer
    num_symbols = num_right = num_exact = 0
    for pair in result.pairs.train:
        source = torch.tensor([tokenizer.encode(pair.source).ids])
        said, _ = network.greedy(source, torch.ones_like(source), 3)  # type: ignore[operator]
        symbols = [tokenizer.id_to_token(token) for token in said[0].tolist()]
        wanted = pair.target.split()
        num_symbols += len(wanted)
        num_right += sum(a == b for a, b in zip(symbols, wanted, strict=False))
        num_exact += symbols == [*wanted, "[END]"]
    assert 0 < num_right < num_symbols, "of no use: nothing or everything is right"
    assert result.train.symbols == num_right / num_symbols
    assert result.train.exact == num_exact / len(result.pairs.train)


def test_batches_are_as_long_as_their_longest_pair(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a b c\tx\nb\ty z\na a\tz\n")
    settings = Seq2SeqSettings(hidden_size=4, epochs=1, test_fraction=0.4)
    pairs, completed = prepare(str(path), settings)
    result = train(pairs, NETWORKS["lstm"].load(), completed)
    vocabulary = result.tokenizer.get_vocab()
    assert {token: vocabulary[token] for token in ("[PAD]", "[START]", "[END]", "[UNK]")} == {
        "[PAD]": 0,
        "[START]": 1,
        "[END]": 2,
        "[UNK]": 3,
    }
    everything = sorted((*pairs.train, *pairs.test))
    tokenized = TokenizedPairs(everything, result.tokenizer, result.network.config, "here")  # type: ignore[arg-type]
    batch = tokenized.batch([0, 2])  # "a a" to "z", "b" to "y z"
    assert batch.mask.tolist() == [[1, 1], [1, 0]]
    assert [row[0] for row in batch.before.tolist()] == [1, 1], "the start comes first"
    assert (batch.target == 2).sum(dim=1).tolist() == [1, 1], "each target has its end"
    assert batch.target[0, 1:].tolist() == [2, 0]


def test_a_source_of_a_file_is_either_trained_or_tested_on(tmp_path: Path) -> None:
    """Of 20 sources, each there three times, a fifth is held out with all of its pairs."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"a {i % 20}\tb {i}\n" for i in range(60)))
    pairs = read_pairs(path, 0.2, 0)
    assert (len(pairs.train), len(pairs.test)) == (48, 12)
    assert not {pair.source for pair in pairs.train} & {pair.source for pair in pairs.test}


def test_only_a_line_feed_ends_a_pair(tmp_path: Path) -> None:
    """Unicode has other characters that end lines, which texts of people hold."""
    path = tmp_path / "pairs.tsv"
    path.write_bytes("a\u2028b\tc\x0cd\r\ne\tf\n".encode())
    pairs = read_pairs(path, 0.5, 0)
    assert {*pairs.train, *pairs.test} == {("a\u2028b", "c\x0cd"), ("e", "f")}


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    result = trained(FEW)
    save_checkpoint(checkpoint_of(result), tmp_path / "lstm")
    loaded = load_checkpoint(tmp_path / "lstm")
    assert loaded.task == "sequence-to-sequence"
    assert loaded.config == result.network.config
    assert loaded.tokenizer.to_str() == result.tokenizer.to_str()
    assert (loaded.max_tokens, loaded.origin) == (3, "trained on reversal of 2 of 6 symbols")
    source = torch.tensor([loaded.tokenizer.encode("s1 s3").ids])
    arguments = source, torch.ones_like(source), torch.tensor([[1, 5]])
    assert torch.equal(loaded.model(*arguments), result.network(*arguments))


def test_a_checkpoint_is_imported_under_another_origin(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    save_checkpoint(checkpoint_of(trained(FEW)), tmp_path / "lstm")
    result = run("import", tmp_path / "lstm", tmp_path / "copy", "--origin", "a lecture")
    assert result.exit_code == 0, result.output
    assert "recurrent, 1 layers, 16 values per token" in result.output
    assert load_checkpoint(tmp_path / "copy").origin == "a lecture"


def test_what_settings_offer_is_what_there_is() -> None:
    assert tuple(NETWORKS) == NAMES
    assert ("none", *SCORES) == ATTENTIONS
    assert FORMS == NETWORK_FORMS
    for task, network in product(TASKS, NAMES):
        given = Seq2SeqSettings(network=network, samples=3, test_samples=2)
        completed = prepare(task, given)[1]
        assert completed.network == network
        assert None not in (completed.epochs, completed.learning_rate, completed.batch_size), task


def test_a_task_has_the_network_that_suits_it() -> None:
    tasks = {task: network_for(task, Seq2SeqSettings()) for task in (*TASKS, "some.tsv")}
    assert tasks == {
        "reversal": "lstm",
        "long-reversal": "lstm",
        "dates": "transformer",
        "some.tsv": "lstm",
    }


WrongUse = Callable[[Path], object]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda _: prepare("sorting", FEW), SettingError, "pairs is 'sorting', but must be one of"),
        (
            lambda _: prepare("reversal", replace(FEW, samples=16)),
            SettingError,
            "samples is 16, but must be at most 14, with 2 of 6 symbols",
        ),
        (lambda _: replace(FEW, symbols=1), SettingError, "symbols is 1, but must be from 2"),
        (lambda _: replace(FEW, network="gru"), SettingError, "network is 'gru', but must be one"),
        (lambda path: read_pairs(path, 0.5, 0), DatasetError, "pairs.tsv:2: expected source<TAB>"),
        (
            lambda path: read_pairs(path.with_name("one.tsv"), 0.5, 0),
            DatasetError,
            "one.tsv has 1 rows that may be parted, too few to hold out 1",
        ),
        (
            lambda path: read_pairs(path.with_name("none.tsv"), 0.5, 0),
            DatasetError,
            "cannot be read: No such file or directory",
        ),
    ],
)
def test_what_is_wrong_is_named(
    wrong: WrongUse, error: type[ModelError], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a b\tb a\nno target\n")
    (tmp_path / "one.tsv").write_text("a b\tb a\n")
    with pytest.raises(error, match=message):
        wrong(path)
