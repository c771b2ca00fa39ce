"""`LadderSettings`: the flags of `attendant ladder` that have defaults. Imports no PyTorch."""

from dataclasses import dataclass

from models.settings import Settings, setting
from models.training.settings import MAX_SEED


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderSettings(Settings):
    """The sizes are those of the networks that are trained from scratch: encoders and GPT."""

    hidden_size: int = setting(
        128, "Values per token. With 128, a CPU trains in minutes.", 1, 16_384
    )
    num_layers: int = setting(
        2, "Number of layers; more layers learn no more from a few thousand texts.", 1, 100
    )
    num_heads: int = setting(2, "Heads of attention; must divide the hidden size.", 1, 1_024)
    min_count: int = setting(
        2,
        "Words that occur less often are unknown to the encoders trained from scratch.",
        1,
        1_000_000,
    )
    max_tokens: int = setting(
        128, "Truncate training texts to this number of tokens.", 8, 1_000_000
    )
    epochs: int = setting(
        8, "Passes over the texts of the encoders trained from scratch.", 1, 1_000
    )
    word_epochs: int = setting(20, "Passes over the texts that train word vectors.", 1, 10_000)
    gpt_steps: int = setting(
        300,
        "Steps of the GPT's pretraining on the texts.",
        1,
        1_000_000,
    )
    tuning_epochs: int = setting(
        4, "Passes over the texts of the pretrained networks that are fine-tuned whole.", 1, 1_000
    )
    head_epochs: int = setting(5, "Passes over the texts of the frozen encoder's head.", 1, 1_000)
    training_texts: int = setting(
        0, "Number of texts to train on, chosen at random; 0 takes all.", 0, 1_000_000_000
    )
    requests: int = setting(200, "Number of requests sent to each model.", 1, 1_000_000)
    seed: int = setting(0, "Decides weights, order and what is held out.", 0, MAX_SEED)
