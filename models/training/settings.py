"""All settings of a fine-tuning run, each with its limits and the reason for its default.

Knows nothing about PyTorch: the command line makes its flags of these fields without importing it.
"""

from dataclasses import dataclass
from typing import Any

from models.errors import SettingError
from models.settings import setting
from models.training.lora_settings import LoraSettings

PRECISIONS = ("auto", "on", "off")
CLASS_WEIGHTS = ("none", "balanced")
BFLOAT16 = (
    "Compute in bfloat16; weights stay float32. Auto uses it only on processors with bfloat16 "
    "multiplication (AVX512_BF16 or AMX), because it is slower on others."
)
TRAIN_TASKS = (
    "text-classification",
    "token-classification",
    "question-answering",
    "pair-scoring",
)
MAX_EPOCHS = 1_000
MAX_SEED = 2**63 - 1  # torch.manual_seed takes no more


@dataclass(frozen=True, slots=True)
class TrainingSettings(LoraSettings):
    """Settings of fine-tuning a checkpoint.

    A learning rate of None follows from the network, and is filled in before use
    (`models/recipes/finetune.py`).
    """

    validation_fraction: float = setting(
        0.1,
        "Fraction of the data for choosing the best epoch, without a file of its own.",
        0.01,
        0.5,
    )
    test_fraction: float = setting(
        0.0,
        "Fraction of DATA to hold out for the final figures. None by default: with little data "
        "all of it is needed.",
        0.0,
        0.5,
    )
    epochs: int = setting(
        4,
        "Largest number of passes over the data. Four is the upper end of what BERT's authors "
        "recommend; early stopping may end sooner.",
        1,
        MAX_EPOCHS,
    )
    batch_size: int = setting(
        32,
        "Texts per step. 32, which BERT's authors recommend; smaller if memory is short.",
        1,
        4_096,
    )
    learning_rate: float = setting(
        None,
        "Highest learning rate, reached after the warm-up. 5e-5, the highest that BERT's "
        "authors recommend: the epochs are few. 5e-4 with --lora, whose factors begin at zero. "
        "1e-2 on an ELMo, of which a task learns only the mix of the layers and a head. With "
        "--freeze-encoder try 1e-3.",
        1e-8,
        1.0,
        shown="5e-5, with --lora 5e-4, on an ELMo 1e-2",
    )
    warmup_fraction: float = setting(
        0.1,
        "Share of all steps in which the rate rises. A tenth: a fresh head's first, large "
        "gradients should not undo what the encoder knows.",
        0.0,
        1.0,
    )
    clip_norm: float = setting(
        1.0,
        "Largest norm of the gradient, to which larger ones are clipped. 1, as BERT was trained.",
        1e-3,
        1e3,
    )
    weight_decay: float = setting(
        0.01,
        "Weight decay of matrices, not of biases and norms. 0.01, as BERT was trained.",
        0.0,
        1.0,
    )
    patience: int = setting(
        2,
        "Number of epochs without a lower validation loss (for tags and answers a higher F1, for "
        "pairs a higher correlation) after which training stops; the best epoch is kept. One bad "
        "epoch is often chance.",
        1,
        MAX_EPOCHS,
    )
    max_tokens: int | None = setting(
        None,
        "Truncate training texts to this number of tokens, to save time and memory. By default "
        "the checkpoint's own limit, which does not change.",
        3,
        1_000_000,
        shown="the checkpoint's",
    )
    class_weights: str = setting(
        "none",
        "Weights of labels in the loss of a classifier of texts: balanced counts each label the "
        "same, however few rows it has, and keeps the epoch with the highest macro F1. None by "
        "default: then probabilities are those of the data.",
        choices=CLASS_WEIGHTS,
    )
    freeze_encoder: bool = setting(
        False, "Train the head only, which is faster and usually less accurate."
    )
    precision: str = setting(
        "auto",
        BFLOAT16,
        choices=PRECISIONS,
    )
    seed: int = setting(
        0,
        "Decides split, order, fresh head and dropout: the same seed on the same machine gives "
        "the same checkpoint. Fixed by default so that runs can be compared.",
        0,
        MAX_SEED,
    )

    def __post_init__(self) -> None:
        LoraSettings.__post_init__(self)
        if self.lora and self.freeze_encoder:
            raise SettingError("freeze_encoder", True, "left out with --lora, which freezes it")

    def to_dict(self) -> dict[str, Any]:
        """Without the weights of labels where there are none: older runs go on as they began."""
        values = LoraSettings.to_dict(self)
        if self.class_weights == "none":
            del values["class_weights"]
        return values
