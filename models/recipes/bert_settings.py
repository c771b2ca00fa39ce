"""The settings of BERT's pretraining, beside those of all pretraining.

Knows nothing about PyTorch: the command line draws its flags from here without importing it.
"""

from dataclasses import dataclass

from models.settings import setting
from models.training.pretrain_settings import OF_SIZE, TransformerSettings

SIZES = ("tiny", "mini", "small", "medium", "base", "large")


@dataclass(frozen=True, slots=True, kw_only=True)
class BertSettings(TransformerSettings):
    """An encoder that learns masked words, and whether one text follows another."""

    size: str = setting(
        "tiny",
        "Sizes of the network, as published: tiny is 2 layers of 128 with 2 heads. Tiny, since it "
        "is what a processor trains in minutes: larger ones learn less in that time.",
        choices=SIZES,
    )
    context: int | None = setting(
        None,
        "Tokens in two texts and the three special ones around them. By default 64 for tiny, "
        "which learns more from many short ones, else 512 as in BERT.",
        16,  # below, hardly a text would have a mask
        1_000_000,
        shown=OF_SIZE,
    )
    vocab_size: int = setting(
        4_096,
        "Most tokens of the tokenizer that is trained, unless letters alone are more. 4096: for a "
        "corpus of some megabytes more would be too rare to be learnt; BERT has 30522.",
        16,
        1_000_000,
    )
    lowercase: bool = setting(
        True,
        "Train a tokenizer that makes letters small and takes their accents away: fewer words, "
        "each seen more often. As for BERT's uncased models.",
    )
    masked_fraction: float = setting(
        0.15,
        "Share of tokens to predict; of those 80 % are masked, 10 % are another token and 10 % "
        "stay as they are. As for BERT.",
        0.01,
        0.5,
    )
    steps: int = setting(
        4_000,
        "Steps of the optimizer; judge by the validation loss whether more would help. Masked "
        "words are few, so BERT learns less from a text than a GPT does, and needs more steps.",
        1,
        100_000_000,
    )
    batch_size: int = setting(
        16, "Pairs of texts computed at once: of 64 tokens, 16 keep a processor busy.", 1, 4_096
    )
    learning_rate: float = setting(
        2e-3,
        "Highest learning rate, reached after the warm-up. 2e-3 suits the size tiny; larger "
        "networks want less, BERT 1e-4 at the size base.",
        1e-8,
        1.0,
    )
    weight_decay: float = setting(
        0.01, "Pull towards zero on matrices, not on biases and norms. As for BERT.", 0.0, 1.0
    )
    validation_windows: int = setting(
        256,
        "Most pairs of texts of the validation part to measure on. 256 of 64 tokens hold some "
        "2,000 masked ones, which know their accuracy to about a hundredth.",
        1,
        1_000_000,
    )
