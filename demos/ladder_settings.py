"""`LadderSettings`: the flags of `attendant ladder` that have defaults. Imports no PyTorch."""

from dataclasses import dataclass

from models.settings import Settings, setting
from models.training.settings import MAX_SEED


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderSettings(Settings):
    """Sizes are of the networks that start from nothing: the encoders, and the GPT."""

    hidden_size: int = setting(128, "Values per token. 128: minutes on a processor.", 1, 16_384)
    num_layers: int = setting(2, "Layers; more learn no more from some thousand texts.", 1, 100)
    num_heads: int = setting(2, "Heads of attention; must divide the hidden size.", 1, 1_024)
    min_count: int = setting(
        2, "Words that occur less often are unknown to the encoders from nothing.", 1, 1_000_000
    )
    max_tokens: int = setting(128, "Longer texts are cut, in training.", 8, 1_000_000)
    epochs: int = setting(8, "Passes over the texts where encoders start from nothing.", 1, 1_000)
    word_epochs: int = setting(20, "Passes over the texts to learn word vectors.", 1, 10_000)
    gpt_steps: int = setting(
        300,
        "Steps in which a GPT learns to continue the texts, before it classifies.",
        1,
        1_000_000,
    )
    tuning_epochs: int = setting(
        4, "Passes over the texts where all of a pretrained network is fine-tuned.", 1, 1_000
    )
    head_epochs: int = setting(
        5, "Passes over the texts where the pretrained encoder is frozen.", 1, 1_000
    )
    training_texts: int = setting(
        0, "Number of texts to train on, chosen at random; 0 takes all.", 0, 1_000_000_000
    )
    requests: int = setting(200, "Requests to each model in its turn.", 1, 1_000_000)
    seed: int = setting(0, "Decides weights, order and what is held out.", 0, MAX_SEED)
