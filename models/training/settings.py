"""All settings of a fine-tuning run, each with its limits; and how settings are described.

Knows nothing about PyTorch: the command line reads its defaults from here without importing it.
"""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from models.errors import check_choice, check_range

PRECISIONS = ("auto", "on", "off")
TRAIN_TASKS = (
    "text-classification",
    "token-classification",
    "question-answering",
    "pair-scoring",
)
IMPORT_TASKS = ("auto", "text-classification", "embedding", "fill-mask", "text-generation")
MAX_EPOCHS = 1_000
MAX_SEED = 2**63 - 1  # torch.manual_seed takes no more


def setting(
    default: Any,  # noqa: ANN401 - a field is of any type
    text: str,
    low: float | None = None,
    high: float = float("inf"),
    choices: tuple[str, ...] = (),
    shown: str = "",
) -> Any:  # noqa: ANN401
    """A field that says what it is for and what is allowed; None is, where it is the default.

    `shown` says in words what a default of None comes to.
    """
    described = {"help": text, "low": low, "high": high, "choices": choices, "shown": shown}
    return field(default=default, metadata=described)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a command, fields made by `setting`.

    Raises SettingError naming the field for a value outside its limits.
    """

    def __post_init__(self) -> None:
        for described in fields(self):
            value, allowed = getattr(self, described.name), described.metadata
            if value is None and described.default is None:
                continue
            if allowed["choices"]:
                check_choice(described.name, value, allowed["choices"])
            elif allowed["low"] is not None:
                check_range(described.name, value, allowed["low"], allowed["high"])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Validates itself: a value outside its limits raises SettingError naming the field."""

    validation_fraction: float = 0.1  # unused where a validation file is given
    test_fraction: float = 0.0
    epochs: int = 4
    batch_size: int = 32
    learning_rate: float = 5e-5
    warmup_fraction: float = 0.1
    clip_norm: float = 1.0
    weight_decay: float = 0.01
    patience: int = 2  # epochs without a better one
    max_tokens: int | None = None  # None: what the checkpoint takes
    freeze_encoder: bool = False
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("validation_fraction", self.validation_fraction, 0.01, 0.5)
        check_range("test_fraction", self.test_fraction, 0.0, 0.5)
        check_range("epochs", self.epochs, 1, MAX_EPOCHS)
        check_range("batch_size", self.batch_size, 1, 4_096)
        check_range("learning_rate", self.learning_rate, 1e-8, 1.0)
        check_range("warmup_fraction", self.warmup_fraction, 0.0, 1.0)
        check_range("clip_norm", self.clip_norm, 1e-3, 1e3)
        check_range("weight_decay", self.weight_decay, 0.0, 1.0)
        check_range("patience", self.patience, 1, MAX_EPOCHS)
        if self.max_tokens is not None:
            check_range("max_tokens", self.max_tokens, 3, 1_000_000)
        check_choice("precision", self.precision, PRECISIONS)
        check_range("seed", self.seed, 0, MAX_SEED)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
