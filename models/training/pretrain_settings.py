"""All settings of training a language model from nothing, each with its limits and reason.

Knows nothing about PyTorch: the command line draws its flags from here without importing it. What
all kinds of model have in common is `PretrainSettings`; each kind adds its own, and its defaults.
"""

from dataclasses import dataclass

from models.settings import Settings, setting
from models.training.lora_settings import LoraSettings
from models.training.settings import BFLOAT16, MAX_SEED, PRECISIONS

OF_SIZE = "the size's"
SIZES = ("tiny", "small", "medium", "large", "xl")


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainSettings(Settings):
    """A step learns from `accumulation` batches of `batch_size` windows of text."""

    dropout: float = setting(
        0.0,
        "Dropout in training. A corpus that is read only a few times causes little "
        "overfitting; try 0.1 if the validation loss rises again.",
        0.0,
        0.9,
    )
    vocab_size: int = setting(
        4_096,
        "Vocabulary size of the tokenizer that is trained. In a corpus of a few megabytes, "
        "further tokens would be too rare to be learned; GPT-2 has 50257.",
        257,  # all bytes, and the end of text
        1_000_000,
    )
    validation_fraction: float = setting(
        0.1,
        "Share of the corpus to hold out for measuring, where no validation file is given: the "
        "end, after its documents were shuffled. A tenth: enough to measure, little lost.",
        0.001,
        0.5,
    )
    steps: int = setting(2_000, "Steps of the optimizer.", 1, 100_000_000)
    batch_size: int = setting(
        2,
        "Windows per batch. 2 keep a CPU busy, and many small steps learn more from "
        "the same number of tokens than few large ones.",
        1,
        4_096,
    )
    accumulation: int = setting(
        1,
        "Batches whose gradients are summed for a step: a larger batch in the same memory.",
        1,
        4_096,
    )
    learning_rate: float = setting(
        1e-3, "Highest learning rate, reached after the warm-up.", 1e-8, 1.0
    )
    warmup_fraction: float = setting(
        0.05,
        "Share of all steps in which the rate rises: AdamW's first estimates are rough.",
        0.0,
        1.0,
    )
    floor_fraction: float = setting(
        0.1,
        "Learning rate at the end of the cosine decay, as a share of the highest. As for GPT-3.",
        0.0,
        1.0,
    )
    beta1: float = setting(0.9, "Decay of AdamW's mean of gradients; its usual value.", 0.0, 0.9999)
    beta2: float = setting(
        0.95,
        "Decay of AdamW's mean of squared gradients. With 0.95, as for GPT-3, a spike of the "
        "loss has a shorter effect than with the usual 0.999.",
        0.0,
        0.99999,
    )
    weight_decay: float = setting(
        0.1, "Weight decay of matrices, not of biases and norms. As for GPT-3.", 0.0, 1.0
    )
    clip_norm: float = setting(
        1.0,
        "Largest norm of the gradient, to which larger ones are clipped. As for GPT-2 and 3.",
        1e-3,
        1e3,
    )
    evaluate_every: int = setting(
        250,
        "Steps between two measurements; the weights of the best measurement are kept.",
        1,
        1_000_000,
    )
    validation_windows: int = setting(
        128, "Largest number of windows of the validation part to measure on.", 1, 1_000_000
    )
    precision: str = setting(
        "auto",
        BFLOAT16,
        choices=PRECISIONS,
    )
    seed: int = setting(
        0,
        "Decides weights, order, what is held out and dropout: the same seed on the same machine "
        "gives the same checkpoint.",
        0,
        MAX_SEED,
    )

    @property
    def windows_per_step(self) -> int:
        return self.batch_size * self.accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSettings(PretrainSettings):
    """Further settings of Transformers; a subclass has a `size` too."""

    num_layers: int | None = setting(
        None, "Layers, in place of the size's own.", 1, 1_000, shown=OF_SIZE
    )
    hidden_size: int | None = setting(
        None,
        "Values per token, in place of the size's own; feed-forward has 4 times as many.",
        1,
        shown=OF_SIZE,
    )
    num_heads: int | None = setting(
        None,
        "Heads of attention, in place of the size's own; must divide the hidden size.",
        1,
        shown=OF_SIZE,
    )
    context: int | None = setting(None, "Tokens in a training window.", 2, 1_000_000, shown=OF_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSettings(TransformerSettings, LoraSettings):
    """Further settings of decoders, which learn to continue text."""

    steps: int = setting(
        2_000,
        "Steps of the optimizer. 2000 of 2 windows of 768 tokens are 3 million tokens, minutes for "
        "tiny; judge by the validation loss whether more would help.",
        1,
        100_000_000,
    )
    learning_rate: float = setting(
        1e-3,
        "Highest learning rate, reached after the warm-up. 1e-3 suits the size tiny; larger "
        "networks need a lower one, GPT-3 6e-4 at the size small.",
        1e-8,
        1.0,
    )
    validation_windows: int = setting(
        128,
        "Largest number of windows of the validation part to measure on, spread evenly over it. "
        "128 windows of 1024 tokens are enough to measure the loss to about 0.01.",
        1,
        1_000_000,
    )
    sample_tokens: int = setting(
        64, "Tokens of the sample that each measurement shows; 0 shows none.", 0, 100_000
    )
    prompt: str = setting(
        "", "Prompt of the samples. By default each sample begins a new document."
    )
    temperature: float = setting(
        0.8, "Temperature of the samples; 0 always takes the most likely token.", 0.0, 10.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GPTSettings(DecoderSettings):
    """A decoder of GPT's kind."""

    size: str = setting(
        "tiny",
        "Size of the network: tiny has 4 layers of 192 values with 3 heads, the others are "
        "GPT-2's. A CPU trains tiny in minutes; larger networks learn less in that time.",
        choices=SIZES,
    )
    context: int | None = setting(
        None,
        "Tokens in a training window, and so the longest prompt and output together. By default "
        "768 for tiny, else 1024 as in GPT-2.",
        2,
        1_000_000,
        shown=OF_SIZE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaSettings(DecoderSettings):
    """A decoder of Llama's kind."""

    size: str = setting(
        "tiny",
        "Size of the network: tiny has 4 layers of 192 values with 3 heads, one of them of keys, "
        "135m is SmolLM2's smallest. A CPU trains tiny in minutes.",
        choices=("tiny", "135m"),
    )
    context: int | None = setting(
        None,
        "Tokens in a training window, and so the longest prompt and output together. By default "
        "768 for tiny, 2048 for 135m.",
        2,
        1_000_000,
        shown=OF_SIZE,
    )
    hidden_size: int | None = setting(
        None,
        "Values per token, in place of the size's own; the gate then has 8/3 as many.",
        1,
        shown=OF_SIZE,
    )
    num_kv_heads: int | None = setting(
        None,
        "Heads of keys and values, in place of the size's own; must divide the number of heads.",
        1,
        shown=OF_SIZE,
    )
    rope_theta: float = setting(
        10_000.0,
        "Base of the rotary positions: larger ones tell distant places apart in longer contexts.",
        2.0,
        1e9,
    )
