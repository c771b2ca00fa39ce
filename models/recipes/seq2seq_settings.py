"""All settings of training a sequence-to-sequence network, each with its limits and reason.

Knows nothing about PyTorch: the command line draws its flags from here without importing it.
Settings that are None at first follow from the task and the network, and are filled in before use
it: `models/recipes/seq2seq_systems.py` has those values.
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
    """What is learnt from which pairs, and how."""

    network: str = setting(
        None,
        "Network to train: lstm, a recurrent encoder and decoder whose tokens are separated by "
        "spaces; or transformer, as published in 2017, whose tokens are subwords of any text. By "
        "default the one that suits the task, and lstm for files.",
        choices=NETWORKS,
        shown=OF_TASK,
    )
    attention: str = setting(
        "dot",
        "How the decoder of an lstm scores the states of its encoder: their product; with a matrix "
        "between; by a layer over both; or not at all. all trains one of each and compares them.",
        choices=(*ATTENTIONS, ALL),
    )
    form: str = setting(
        "luong",
        "Of an lstm with attention: luong, the decoder's new state asks and what it finds is mixed "
        "into the output; or bahdanau, the state before asks, what it finds goes into the cell, "
        "and the encoder reads from both ends.",
        choices=FORMS,
    )
    hidden_size: int = setting(None, "Values per token, in all layers.", 1, 4_096, shown=OF_TASK)
    size: str = setting(
        "small",
        "Of a transformer: small, 2 + 2 layers of 128 for minutes on a processor; or published, "
        "the paper's 6 + 6 layers of 512 with its dropout of 0.1 and its learning rate, which "
        "rises for 4,000 steps to 7e-4.",
        choices=SIZES,
    )
    num_layers: int | None = setting(None, "Of a transformer, on each side.", 1, 100, shown=OF_SIZE)
    num_heads: int | None = setting(
        None, "Of a transformer; must divide the hidden size.", 1, 1_000, shown=OF_SIZE
    )
    dropout: float | None = setting(
        None, "Of a transformer: share of values dropped in training.", 0.0, 0.9, shown=OF_SIZE
    )
    length: int = setting(
        None, "Generated tasks: symbols of a sequence.", 1, MAX_LENGTH, shown=OF_TASK
    )
    symbols: int = setting(
        None, "Generated tasks: how many different symbols there are.", 2, 10_000, shown=OF_TASK
    )
    samples: int = setting(
        None, "Generated tasks: pairs to train on.", 1, 10_000_000, shown=OF_TASK
    )
    test_samples: int = setting(
        None,
        "Generated tasks: pairs to test on, none of which is trained on.",
        1,
        1_000_000,
        shown=OF_TASK,
    )
    test_fraction: float = setting(
        0.1, "Files: share of the pairs that is held out to test on. A tenth.", 0.001, 0.5
    )
    epochs: int = setting(None, "How often every pair is seen.", 1, MAX_EPOCHS, shown=OF_TASK)
    batch_size: int = setting(
        None,
        "Pairs in a step. 32 of an lstm: many small steps learn more than few large ones; 64 of a "
        "transformer, which computes a target's tokens at once.",
        1,
        4_096,
        shown=OF_NETWORK,
    )
    learning_rate: float = setting(
        None,
        "Highest learning rate. Of the published size the hidden size times the steps of the "
        "warm-up, to the power of -0.5.",
        1e-8,
        1.0,
        shown=OF_TASK_OR_SIZE,
    )
    warmup_fraction: float = setting(
        None,
        "Share of all steps in which the rate rises. None of an lstm, whose gradients are clipped; "
        "a fifth of a small transformer, whose rate then falls slowly.",
        0.0,
        1.0,
        shown=OF_NETWORK,
    )
    warmup_steps: int | None = setting(
        None,
        "Of a transformer: the steps in which the rate rises, in place of a share of all steps. "
        "4,000 of the published size.",
        1,
        1_000_000,
        shown=OF_SIZE,
    )
    weight_decay: float = setting(
        None, "Pull towards zero on matrices, for where pairs are few.", 0.0, 1.0, shown=OF_TASK
    )
    clip_norm: float = setting(
        1.0,
        "Longest gradient; longer ones are shortened to it: those of an LSTM can explode.",
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
            raise SettingError("warmup_steps", self.warmup_steps, "absent beside warmup_fraction")

    def completed(self, *defaults: Mapping[str, Any]) -> Self:
        """With what is None taken from the first of `defaults` that has it."""
        missing = [field.name for field in fields(self) if getattr(self, field.name) is None]
        found = {
            name: next(values[name] for values in defaults if name in values)
            for name in missing
            if any(name in values for values in defaults)
        }
        return replace(self, **found)
