"""Settings that describe themselves: each field with its help, limits and choices.

Knows nothing about PyTorch or flags: the command line makes its flags of these fields.
"""

from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from models.errors import check_choice, check_range

REQUIRED = MISSING  # as a default: the value must be given


def setting(
    default: Any,  # noqa: ANN401 - a field is of any type
    text: str,
    low: float | None = None,
    high: float = float("inf"),
    choices: tuple[str, ...] = (),
    shown: str = "",
    variable: str = "",
    spelt: tuple[str, ...] = (),
) -> Any:  # noqa: ANN401
    """A field with its help and what is allowed; None is allowed where it is the default.

    `shown` says in words what a default of None means, `variable` names the environment variable
    if it does not follow from the names of command and field, `spelt` the flag's names.
    """
    described = {
        "help": text,
        "low": low,
        "high": high,
        "choices": choices,
        "shown": shown,
        "variable": variable,
        "spelt": spelt,
    }
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
