"""Training a decoder of Llama's kind: it learns as GPT does, by the same loop and loss."""

from functools import partial

import pytest
from tokenizers import Tokenizer

from models.data.byte_pairs import end_of_text_id, train_tokenizer
from models.data.corpus import Corpus
from models.errors import SettingError
from models.networks.gpt import GPTConfig
from models.networks.llama import Llama, LlamaConfig
from models.recipes.llama import PRESETS, PRETRAINING, config_of
from models.recipes.pretrain import pretrain as pretrain_any
from models.training.pretrain_settings import LlamaSettings
from models.training.trainer import Session
from tests.models.recipes.mats import mats

pretrain = partial(pretrain_any, PRETRAINING)
SETTINGS = LlamaSettings(
    num_layers=2,
    hidden_size=32,
    num_heads=2,
    context=24,
    vocab_size=290,
    steps=120,
    batch_size=4,
    learning_rate=1e-2,
    evaluate_every=4,
    sample_tokens=12,
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
    """60 sentences of one form, of which only animal, verb and number are left to guess."""
    trained = pretrain(corpus, byte_tokenizer, SETTINGS, Session())
    perplexities = [each.figures["perplexity"] for each in trained.progress.measurements]
    assert perplexities[-1] < 2.5 < 20 < perplexities[0]
    assert isinstance(trained.checkpoint.model, Llama)
    best = trained.progress.best
    assert best is not None
    assert best.sample is not None
    assert " on mat " in best.sample


def test_the_same_seed_gives_the_same_weights(corpus: Corpus, byte_tokenizer: Tokenizer) -> None:
    settings = LlamaSettings(**{**SETTINGS.to_dict(), "steps": 3, "dropout": 0.2})
    one, other = (pretrain(corpus, byte_tokenizer, settings).checkpoint.model for _ in range(2))
    states = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    assert all(first.equal(second) for first, second in states)


def test_sizes_follow_the_settings(byte_tokenizer: Tokenizer) -> None:
    config = config_of(SETTINGS, byte_tokenizer)
    assert (config.num_layers, config.hidden_size, config.head_size) == (2, 32, 16)
    assert (config.num_heads, config.num_kv_heads, config.intermediate_size) == (2, 1, 96)
    assert config.eos_token_ids == (end_of_text_id(byte_tokenizer),)
    own = LlamaSettings(num_kv_heads=3, rope_theta=500.0, context=64)
    of_size = config_of(own, byte_tokenizer)
    assert (of_size.num_kv_heads, of_size.intermediate_size, of_size.max_positions) == (3, 576, 64)
    assert of_size.ropes[0].inverse_frequencies[1] == pytest.approx(500.0 ** (-1 / 32))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (LlamaSettings(num_heads=5), "num_heads is 5, but must be a divisor of hidden_size 192"),
        (LlamaSettings(num_kv_heads=2), "num_kv_heads is 2, but must be a divisor of num_heads 3"),
    ],
)
def test_heads_that_do_not_fit_are_refused(
    byte_tokenizer: Tokenizer, settings: LlamaSettings, words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        config_of(settings, byte_tokenizer)


def test_presets_have_their_numbers_of_weights() -> None:
    """Tiny is as large as GPT's tiny; the other is what its name says."""
    count = {
        name: sum(weight.numel() for weight in Llama(preset()).parameters())
        for name, preset in PRESETS.items()
    }
    gpt = GPTConfig.tiny()
    rest = count["tiny"] - gpt.vocab_size * gpt.hidden_size
    layers = gpt.num_layers * 12 * gpt.hidden_size**2
    assert rest == pytest.approx(layers, rel=0.05)
    assert count["135m"] == pytest.approx(134.5e6, rel=0.01)
    assert LlamaConfig.smol().is_tied
