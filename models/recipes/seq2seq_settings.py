"""All settings of training a sequence-to-sequence network, each with its limits and reason.

Knows nothing about PyTorch: the command line draws its flags from here without importing it.
Settings that are None follow from the task and the network, and are filled in before use:
`models/recipes/seq2seq_systems.py` has their values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from models.data.pairs import MAX_LENGTH
from models.errors import SettingError
from models.settings import Settings, setting
from models.training.settings import MAX_EPOCHS, MAX_SEED

NETWORKS = ("lstm", "transformer")
SIZES = ("small", "published")
SCORES = ("dot", "multiplicative", "additive")
ATTENTIONS = ("none", *SCORES)
FORMS = ("luong", "bahdanau")
ALL = "all"
OF_TASK = "the task's"
OF_SIZE = "the size's"
OF_NETWORK = "the network's"
OF_TASK_OR_SIZE = "the task's or the size's"


@dataclass(frozen=True, slots=True)
class Seq2SeqSettings(Settings):
    """A sequence-to-sequence network, its pairs and its training."""

    network: str = setting(
        None,
        "Network to train: lstm, a recurrent encoder and decoder whose tokens are separated by "
        "spaces; or transformer, as published in 2017, whose tokens are subwords of any text. By "
        "default the network that suits the task, and lstm for files.",
        choices=NETWORKS,
        shown=OF_TASK,
    )
    attention: str = setting(
        "dot",
        "Attention of an lstm: dot, the product of the decoder's and the encoder's states; "
        "multiplicative, with a matrix between them; additive, by a layer over both; or none. "
        "With all, a network is trained with each of them, and the networks are compared.",
        choices=(*ATTENTIONS, ALL),
    )
    form: str = setting(
        "luong",
        "Form of an lstm with attention: luong, the decoder's new state is the query, and the "
        "context is mixed into the output; or bahdanau, the previous state is the query, the "
        "context is an input of the cell, and the encoder is bidirectional.",
        choices=FORMS,
    )
    hidden_size: int = setting(None, "Values per token, in all layers.", 1, 4_096, shown=OF_TASK)
    size: str = setting(
        "small",
        "Size of a transformer: small, 2 + 2 layers of 128 values, which a CPU trains in minutes; "
        "or published, the paper's 6 + 6 layers of 512 values with its dropout of 0.1 and its "
        "learning rate, which rises for 4,000 steps to 7e-4.",
        choices=SIZES,
    )
    num_layers: int | None = setting(
        None,
        "Transformers: number of layers of the encoder, and of the decoder.",
        1,
        100,
        shown=OF_SIZE,
    )
    num_heads: int | None = setting(
        None,
        "Transformers: heads of attention; must divide the hidden size.",
        1,
        1_000,
        shown=OF_SIZE,
    )
    dropout: float | None = setting(
        None, "Transformers: dropout in training.", 0.0, 0.9, shown=OF_SIZE
    )
    length: int = setting(
        None, "Generated tasks: number of symbols in a sequence.", 1, MAX_LENGTH, shown=OF_TASK
    )
    symbols: int = setting(
        None, "Generated tasks: number of different symbols.", 2, 10_000, shown=OF_TASK
    )
    samples: int = setting(
        None, "Generated tasks: number of pairs to train on.", 1, 10_000_000, shown=OF_TASK
    )
    test_samples: int = setting(
        None,
        "Generated tasks: number of pairs to test on, none of which is trained on.",
        1,
        1_000_000,
        shown=OF_TASK,
    )
    test_fraction: float = setting(
        0.1, "Files: share of the pairs to hold out for testing.", 0.001, 0.5
    )
    epochs: int = setting(None, "Passes over the pairs.", 1, MAX_EPOCHS, shown=OF_TASK)
    batch_size: int = setting(
        None,
        "Pairs per step. 32 for an lstm, which learns more from many small steps than from few "
        "large ones; 64 for a transformer, which computes all tokens of a target at once.",
        1,
        4_096,
        shown=OF_NETWORK,
    )
    learning_rate: float = setting(
        None,
        "Highest learning rate, reached after the warm-up. For the published size it is the "
        "product of hidden size and warm-up steps to the power of -0.5.",
        1e-8,
        1.0,
        shown=OF_TASK_OR_SIZE,
    )
    warmup_fraction: float = setting(
        None,
        "Share of all steps in which the rate rises. 0 for an lstm, whose gradients are clipped; "
        "0.2 for a small transformer, whose rate then falls slowly.",
        0.0,
        1.0,
        shown=OF_NETWORK,
    )
    warmup_steps: int | None = setting(
        None,
        "Transformers: number of steps in which the rate rises, in place of a share of all steps. "
        "4,000 for the published size.",
        1,
        1_000_000,
        shown=OF_SIZE,
    )
    weight_decay: float = setting(
        None,
        "Weight decay of matrices; it helps if there are few pairs.",
        0.0,
        1.0,
        shown=OF_TASK,
    )
    clip_norm: float = setting(
        1.0,
        "Largest norm of the gradient, to which larger ones are clipped: gradients of an LSTM can "
        "explode.",
        1e-3,
        1e3,
    )
    seed: int = setting(
        0,
        "Decides pairs, weights and order: the same seed on the same machine gives the same "
        "checkpoint.",
        0,
        MAX_SEED,
    )

    def __post_init__(self) -> None:
        Settings.__post_init__(self)  # super() does not know a class with slots
        if self.warmup_steps is not None and self.warmup_fraction:
            raise SettingError(
                "warmup_steps", self.warmup_steps, "left out, since warmup_fraction is given"
            )

    def completed(self, *defaults: Mapping[str, Any]) -> Self:
        """The settings; those that are None come from the first of `defaults` that has them."""
        missing = [field.name for field in fields(self) if getattr(self, field.name) is None]
        found = {
            name: next(values[name] for values in defaults if name in values)
            for name in missing
            if any(name in values for values in defaults)
        }
        return replace(self, **found)
