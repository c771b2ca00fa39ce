"""Training a GPT: it learns, from accumulated batches too, and keeps the best weights."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from models.data.byte_pairs import token_stream, train_tokenizer
from models.data.corpus import Corpus
from models.errors import DatasetError, SettingError
from models.networks.gpt import GPT, GPTConfig
from models.recipes.gpt import PRESETS, PRETRAINING, HeldOut, config_of, mean_loss, sampler
from models.recipes.pretrain import pretrain as pretrain_any
from models.training.pretrain_settings import SIZES, GPTSettings
from models.training.state import Measurement
from models.training.trainer import Listener, Session
from tests.models.recipes.mats import mats

pretrain = partial(pretrain_any, PRETRAINING)
# 60 documents of about 10 tokens: some 20 windows of 24 train.
SETTINGS = GPTSettings(
    num_layers=2,
    hidden_size=32,
    num_heads=2,
    context=24,
    vocab_size=290,
    steps=9,
    batch_size=4,
    learning_rate=1e-2,
    evaluate_every=3,
    sample_tokens=8,
    precision="off",
)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return mats()


@pytest.fixture(scope="module")
def byte_tokenizer(corpus: Corpus) -> Tokenizer:
    return train_tokenizer(corpus.train, SETTINGS.vocab_size)


def test_perplexity_falls_and_samples_are_of_the_kind(
    corpus: Corpus, byte_tokenizer: Tokenizer
) -> None:
    """60 sentences of one form: 120 steps take the perplexity from over 20 to below 2.

    A sentence has about 9 tokens, of which a third are not certain: 3 animals, 4 verbs, 5 numbers
    are ln(3 * 4 * 5) / 9 = 0.45 nats, a perplexity of 1.6.
    """
    settings = replace(SETTINGS, steps=120, evaluate_every=4, sample_tokens=16, temperature=0.0)
    result = pretrain(corpus, byte_tokenizer, settings)
    first, best = result.progress.measurements[0], result.progress.best
    assert best is not None
    assert best.figures["perplexity"] < 2.0 < 20.0 < first.figures["perplexity"]
    assert best.sample.startswith("the ")
    assert result.checkpoint.task == "text-generation"
    assert result.checkpoint.origin == "trained on mats.txt"
    assert result.checkpoint.max_tokens == 24
    assert result.checkpoint.metrics == {
        "validation_perplexity": best.figures["perplexity"],
        "validation_bits_per_byte": best.figures["bits_per_byte"],
    }
    assert not result.checkpoint.model.training


def test_accumulated_batches_learn_as_one_large_batch(
    corpus: Corpus, byte_tokenizer: Tokenizer
) -> None:
    large = pretrain(corpus, byte_tokenizer, replace(SETTINGS, steps=3, batch_size=8))
    small = replace(SETTINGS, steps=3, batch_size=2, accumulation=4)
    accumulated = pretrain(corpus, byte_tokenizer, small)
    losses = accumulated.progress.step_losses
    assert losses == pytest.approx(large.progress.step_losses, abs=1e-5)
    input_ids = torch.arange(24)[None]
    with torch.inference_mode():
        ours, theirs = (run.checkpoint.model(input_ids) for run in (accumulated, large))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)


class Recorder(Listener):
    """Keeps the measurements."""

    def __init__(self) -> None:
        self.measurements: list[Measurement] = []

    def measured(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)


def test_the_best_measured_weights_are_kept(corpus: Corpus, byte_tokenizer: Tokenizer) -> None:
    """After a few good steps a rate of 1 that never falls wrecks the model."""
    recorder = Recorder()
    wild = replace(SETTINGS, learning_rate=1.0, warmup_fraction=1.0, evaluate_every=1)
    result = pretrain(corpus, byte_tokenizer, wild, Session(listener=recorder))
    losses = [measurement.validation_loss or 0.0 for measurement in recorder.measurements]
    assert len(losses) == 9
    assert min(losses) < losses[-1]
    assert result.progress.best == recorder.measurements[losses.index(min(losses))]
    held_out = HeldOut(token_stream(corpus.validation, byte_tokenizer), 1)
    model = result.checkpoint.model
    assert isinstance(model, GPT)
    assert mean_loss(model, held_out, SETTINGS.validation_windows) == min(losses)


def test_sizes_are_presets_with_single_replacements(byte_tokenizer: Tokenizer) -> None:
    assert set(PRESETS) == set(SIZES)
    medium = config_of(GPTSettings(size="medium"), byte_tokenizer)
    assert medium == replace(
        GPTConfig.medium(),
        vocab_size=byte_tokenizer.get_vocab_size(),
        dropout=0.0,
        eos_token_id=0,
    )
    other = config_of(
        GPTSettings(num_layers=3, hidden_size=96, num_heads=4, context=77), byte_tokenizer
    )
    assert (other.num_layers, other.hidden_size, other.num_heads) == (3, 96, 4)
    assert (other.intermediate_size, other.max_positions) == (384, 77)
    with pytest.raises(SettingError, match="num_heads is 7, but must be a divisor"):
        config_of(GPTSettings(num_heads=7), byte_tokenizer)


def test_a_sample_continues_its_prompt_and_repeats(byte_tokenizer: Tokenizer) -> None:
    model = GPT(config_of(SETTINGS, byte_tokenizer)).eval()
    sample = sampler(byte_tokenizer, replace(SETTINGS, prompt="the hen", sample_tokens=5))
    assert sample(model) == sample(model)
    assert sample(model).startswith("the hen")
    assert sampler(byte_tokenizer, replace(SETTINGS, sample_tokens=0))(model) == ""


def test_too_little_text_is_said_before_training(byte_tokenizer: Tokenizer) -> None:
    short = Corpus((), ("the cat",), ("the cat sat",))
    with pytest.raises(DatasetError, match=r"to train on has .* tokens, but one window takes 24"):
        pretrain(short, byte_tokenizer, SETTINGS)


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("size", "huge", "one of tiny, small, medium, large, xl"),
        ("num_layers", 0, "from 1 to 1000"),
        ("context", 1, "from 2 to 1e+06"),
        ("dropout", 0.95, "from 0 to 0.9"),
        ("vocab_size", 256, "from 257 to 1e+06"),
        ("validation_fraction", 0.0, "from 0.001 to 0.5"),
        ("steps", 0, "from 1 to 1e+08"),
        ("accumulation", 0, "from 1 to 4096"),
        ("floor_fraction", 1.5, "from 0 to 1"),
        ("beta2", 1.0, "from 0 to 0.99999"),
        ("evaluate_every", 0, "from 1 to 1e+06"),
        ("temperature", -1.0, "from 0 to 10"),
        ("precision", "half", "one of auto, on, off"),
        ("seed", -1, "from 0 to"),
    ],
)
def test_a_setting_outside_its_limits_names_field_value_and_limit(
    field: str, value: object, limit: str
) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(SettingError) as caught:
        GPTSettings(**values)
    assert str(caught.value).startswith(f"{field} is {value!r}, but must be {limit}")
