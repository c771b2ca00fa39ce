"""All settings of a probe, each with its limits and reason.

Knows nothing about PyTorch: the command line draws its flags from here without importing it.
"""

from dataclasses import dataclass

from models.settings import Settings, setting
from models.training.settings import MAX_SEED


@dataclass(frozen=True, slots=True)
class ProbeSettings(Settings):
    """Settings of training linear classifiers of words."""

    epochs: int = setting(
        10, "Passes over the words; a linear classifier learns little in more.", 1, 1_000
    )
    batch_size: int = setting(256, "Words per step.", 1, 1_000_000)
    learning_rate: float = setting(
        3e-3, "Learning rate of Adam at the first step, which falls to zero linearly.", 1e-8, 1.0
    )
    weight_decay: float = setting(0.01, "Weight decay: few words are entities.", 0.0, 1.0)
    max_tokens: int = setting(
        128, "Longest sentence in tokens; longer ones are cut, and their rest counts as outside.", 3
    )
    seed: int = setting(
        0,
        "Decides weights and order: the same seed on the same machine gives the same figures.",
        0,
        MAX_SEED,
    )
