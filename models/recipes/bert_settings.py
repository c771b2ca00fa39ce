"""The settings of BERT's pretraining, beside those of all pretraining.

Knows nothing about PyTorch: the command line draws its flags from here without importing it.
"""

from dataclasses import dataclass

from models.settings import setting
from models.training.pretrain_settings import OF_SIZE, TransformerSettings

DEFAULT_CONTEXT = 512  # tokens, as in BERT
MODERNBERT = "modernbert"
SIZES = ("tiny", "mini", "small", "medium", "base", "large")


@dataclass(frozen=True, slots=True, kw_only=True)
class BertSettings(TransformerSettings):
    """An encoder that learns to predict masked words, and whether one text follows another."""

    size: str = setting(
        "tiny",
        "Size of the network, as published: tiny has 2 layers of 128 values with 2 heads. A CPU "
        "trains tiny in minutes; larger networks learn less in that time.",
        choices=SIZES,
    )
    form: str | None = setting(
        None,
        "Form of the network. modernbert has rotary positions, gated feed-forward layers, norms "
        "before a layer's parts, windows in two layers of three, and of base and large the "
        "published layers; it learns the same of the same texts.",
        choices=("bert", MODERNBERT),
        shown="bert",
    )
    context: int | None = setting(
        None,
        "Number of tokens of a pair of texts, with its three special tokens. By default 64 for "
        "tiny, which learns more from many short pairs, else 512 as in BERT. Training that begins "
        "from a checkpoint may have shorter pairs than it reads, at most 512 by default.",
        16,  # in shorter pairs, few texts would have a masked token
        1_000_000,
        shown=OF_SIZE,
    )
    vocab_size: int = setting(
        4_096,
        "Vocabulary size of the tokenizer that is trained; it grows if the corpus has more "
        "letters. In a corpus of a few megabytes, further tokens would be too rare to be learned; "
        "BERT has 30522.",
        16,
        1_000_000,
    )
    lowercase: bool = setting(
        True,
        "Train a tokenizer that lowercases texts and strips accents: the corpus then has fewer "
        "words, and each occurs more often. As for BERT's uncased models.",
    )
    masked_fraction: float = setting(
        0.15,
        "Share of tokens to predict; of those 80 % are masked, 10 % are replaced by a random "
        "token, and 10 % are unchanged. As for BERT; ModernBERT has 0.3.",
        0.01,
        0.5,
    )
    steps: int = setting(
        4_000,
        "Steps of the optimizer; judge by the validation loss whether more would help. BERT "
        "predicts few tokens of a text, so it needs more steps than a GPT.",
        1,
        100_000_000,
    )
    batch_size: int = setting(
        16, "Pairs of texts per batch. 16 pairs of 64 tokens keep a CPU busy.", 1, 4_096
    )
    learning_rate: float = setting(
        2e-3,
        "Highest learning rate, reached after the warm-up. 2e-3 suits the size tiny; larger "
        "networks need a lower one, BERT 1e-4 at the size base.",
        1e-8,
        1.0,
    )
    weight_decay: float = setting(
        0.01, "Weight decay of matrices, not of biases and norms. As for BERT.", 0.0, 1.0
    )
    validation_windows: int = setting(
        256,
        "Largest number of pairs of texts of the validation part to measure on. 256 pairs of 64 "
        "tokens have about 2,000 masked tokens, enough to measure accuracy to about 1 %.",
        1,
        1_000_000,
    )
