"""All settings of training a Vision Transformer, each with its limits and reason.

Knows nothing about PyTorch: the command line draws its flags from here without importing it.
"""

from dataclasses import dataclass

from models.settings import Settings, setting
from models.training.settings import BFLOAT16, MAX_EPOCHS, MAX_SEED, PRECISIONS, TrainingSettings


@dataclass(frozen=True, slots=True)
class VisionSettings(Settings):
    """A Vision Transformer and its training."""

    patch_size: int = setting(
        2,
        "Height and width in pixels of the patches that are tokens; must divide the images' height "
        "and width. With 2, a digit of 8 x 8 pixels has 16 patches; 16 is usual for photographs.",
        1,
        1_024,
    )
    hidden_size: int = setting(64, "Values per token; feed-forward has 4 times as many.", 1)
    num_layers: int = setting(3, "Number of layers.", 1, 1_000)
    num_heads: int = setting(4, "Heads of attention; must divide the hidden size.", 1)
    dropout: float = setting(
        0.0,
        "Dropout in training. Randomly shifted images cause little overfitting in the default "
        "number of epochs.",
        0.0,
        0.9,
    )
    max_shift: int = setting(
        1,
        "Largest random shift of images in training, in pixels: a network without convolutions "
        "has to learn that a shifted digit is the same digit.",
        0,
        1_024,
    )
    validation_fraction: float = setting(
        0.1, "Share of the images for choosing the best epoch.", 0.01, 0.5
    )
    test_fraction: float = setting(
        0.2, "Share of the images to hold out for the final figures.", 0.01, 0.5
    )
    epochs: int = setting(50, "Passes over the images.", 1, MAX_EPOCHS)
    batch_size: int = setting(32, "Images per step.", 1, 4_096)
    learning_rate: float = setting(
        2e-3,
        "Highest learning rate, reached after the warm-up; larger networks need a lower one.",
        1e-8,
        1,
    )
    warmup_fraction: float = setting(
        0.1, "Share of all steps in which the rate rises; then it falls to zero.", 0.0, 1.0
    )
    weight_decay: float = setting(
        0.05, "Weight decay of matrices, not of biases and norms.", 0.0, 1.0
    )
    clip_norm: float = setting(
        1.0,
        "Largest norm of the gradient, to which larger ones are clipped, as in the paper.",
        1e-3,
        1e3,
    )
    patience: int = setting(
        20, "Epochs without a lower validation loss after which training ends.", 1, MAX_EPOCHS
    )
    precision: str = setting(
        "auto",
        BFLOAT16,
        choices=PRECISIONS,
    )
    seed: int = setting(
        0,
        "Decides weights, order, what is held out, shifts and dropout: the same seed on the same "
        "machine gives the same checkpoint.",
        0,
        MAX_SEED,
    )

    def of_training(self) -> TrainingSettings:
        """The settings of the training loop."""
        return TrainingSettings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            warmup_fraction=self.warmup_fraction,
            clip_norm=self.clip_norm,
            weight_decay=self.weight_decay,
            patience=self.patience,
            precision=self.precision,
            seed=self.seed,
        )
