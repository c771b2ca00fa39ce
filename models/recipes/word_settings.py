"""All settings of training word vectors and ELMo, each with its limits and reason.

Knows nothing about PyTorch: the command line draws its flags from here without importing it.
"""

from dataclasses import dataclass

from models.settings import Settings, setting
from models.training.pretrain_settings import PretrainSettings
from models.training.settings import MAX_SEED


@dataclass(frozen=True, slots=True)
class WordSettings(Settings):
    """Skip-gram with negative sampling."""

    vector_size: int = setting(
        100, "Values per word. 100 are enough for a corpus of a few megabytes.", 1, 4_096
    )
    window: int = setting(
        5,
        "Largest number of words before and after a word that it learns to predict. Each time a "
        "random number up to this is drawn, so that near words count more. 5, as in word2vec.",
        1,
        100,
    )
    negatives: int = setting(
        5, "Noise words per pair. 5 to 20 suit small corpora, 2 to 5 large ones.", 1, 100
    )
    noise_power: float = setting(
        0.75, "Noise words are drawn by their frequency to this power, as published.", 0.0, 1.0
    )
    subsample: float = setting(
        1e-3,
        "Frequency above which a word is left out at times: with probability "
        "1 - sqrt(subsample / frequency). 1e-3: 'the' still occurs in a small corpus.",
        1e-8,
        1.0,
    )
    min_count: int = setting(
        5,
        "Words that occur less often are left out, because too little can be learned about them.",
        1,
        1_000_000,
    )
    max_words: int = setting(100_000, "Largest vocabulary: the most frequent words.", 2, 1_000_000)
    epochs: int = setting(
        20, "Passes over the text. 20 for a corpus of a megabyte, fewer for more.", 1, 10_000
    )
    batch_size: int = setting(1_024, "Pairs computed at once.", 1, 1_000_000)
    learning_rate: float = setting(
        5e-3, "Learning rate of Adam at the first step, which falls to zero linearly.", 1e-8, 1.0
    )
    seed: int = setting(
        0,
        "Decides weights, order, windows and noise: the same seed on the same machine gives the "
        "same vectors.",
        0,
        MAX_SEED,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ElmoSettings(PretrainSettings):
    """LSTMs that learn to predict the next word, and others the previous word."""

    hidden_size: int = setting(
        128,
        "Units of each LSTM, and values of a word's vector; a layer's features are twice as many. "
        "128, since it is what a processor trains in minutes; ELMo had 512.",
        1,
        16_384,
    )
    num_layers: int = setting(2, "Stacked LSTMs in each direction. 2, as in ELMo.", 1, 100)
    context: int = setting(
        128,
        "Tokens in a row, and so the longest text; longer lines of the corpus are cut into several "
        "rows.",
        3,  # a word between the special tokens
        1_000_000,
    )
    min_count: int = setting(
        2,
        "Words that occur less often are unknown, because nothing could be learned about them.",
        1,
        1_000_000,
    )
    dropout: float = setting(
        0.1, "Share of values dropped before each LSTM in training. As in ELMo.", 0.0, 0.9
    )
    vocab_size: int = setting(
        20_000, "Vocabulary size: the most frequent words and punctuation marks.", 6, 1_000_000
    )
    steps: int = setting(
        1_500,
        "Steps of the optimizer; judge by the validation loss whether more would help.",
        1,
        100_000_000,
    )
    batch_size: int = setting(32, "Rows computed at once.", 1, 4_096)
    learning_rate: float = setting(
        3e-3, "Highest learning rate, reached after the warm-up.", 1e-8, 1.0
    )
    weight_decay: float = setting(0.01, "Weight decay of matrices, not of biases.", 0.0, 1.0)
    validation_windows: int = setting(
        512, "Largest number of rows of the validation part to measure on.", 1, 1_000_000
    )
