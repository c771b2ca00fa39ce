"""The settings of training adapters in place of all weights, each with its limits and reason.

Knows nothing about PyTorch, as all settings.
"""

from dataclasses import dataclass

from models.errors import SettingError
from models.settings import Settings, setting

ALL_LINEAR = "all-linear"
RANK, TARGETS = 8, "query,value"


@dataclass(frozen=True, kw_only=True)  # without slots, so that settings of two kinds may have it
class LoraSettings(Settings):
    """Without `lora` the others are left out."""

    lora: bool = setting(
        False,
        "Train a LoRA adapter: all weights stay as they are, and small factors beside some of them "
        "learn. The output is then a folder of PEFT's files, which import --adapter reads.",
    )
    lora_rank: int | None = setting(
        None,
        "LoRA: rank of the factors. 8, as in PEFT; more where the data is unlike the base's.",
        1,
        4_096,
        shown=str(RANK),
    )
    lora_alpha: float | None = setting(
        None,
        "LoRA: what is learnt is multiplied by alpha / rank. Twice the rank, as is usual.",
        1e-3,
        1e6,
        shown="twice the rank",
    )
    lora_targets: str | None = setting(
        None,
        "LoRA: the linear maps of each layer that have factors, with commas between: query, key, "
        "value, output, gate, expand, contract; or all-linear. Query and value, as in the paper.",
        shown=TARGETS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lora_rank", "lora_alpha", "lora_targets"):
            if not self.lora and (value := getattr(self, name)) is not None:
                raise SettingError(name, value, "left out without --lora")

    @property
    def rank(self) -> int:
        return self.lora_rank or RANK

    @property
    def alpha(self) -> float:
        return self.lora_alpha or 2.0 * self.rank

    @property
    def targets(self) -> tuple[str, ...]:
        """The last parts of names of linear maps; empty for all."""
        stated = self.lora_targets or TARGETS
        return () if stated == ALL_LINEAR else tuple(map(str.strip, stated.split(",")))
