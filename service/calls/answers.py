"""Parts of several calls' answers: where their time went, labels, tokens and rows of numbers.

Imports NumPy where numbers are read: a command line has the records for its flags alone.
"""

from typing import TYPE_CHECKING, Self, TypeAlias

import msgspec

if TYPE_CHECKING:
    import numpy as np

    # Float32, [D]. A list of many numbers is made where it is read, once.
    Values: TypeAlias = np.ndarray | tuple[()]
else:
    Values = object


class Timings(msgspec.Struct, frozen=True):
    """Durations of the parts of a request, in seconds."""

    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    total_seconds: float = 0.0

    def __add__(self, other: "Timings") -> "Timings":
        """The sums of both."""
        return Timings(
            self.queue_seconds + other.queue_seconds,
            self.compute_seconds + other.compute_seconds,
            self.total_seconds + other.total_seconds,
        )


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of every answer."""

    model: str
    version: str
    timings: Timings

    def also(self, **more: object) -> Self:
        """A copy of the answer, with other values."""
        return msgspec.structs.replace(self, **more)


class Row(msgspec.Struct, frozen=True):
    """Numbers of one thing: of a token's vector, or of the similarities of a text."""

    values: Values

    @property
    def numbers(self) -> list[float]:
        """The values as JSON has them."""
        return numbers_of(self.values)


class LabelScore(msgspec.Struct, frozen=True):
    """A label, and how well it fits."""

    label: str
    score: float


class Token(msgspec.Struct, frozen=True):
    """A token, and [start, end) of the characters it stands for."""

    id: int
    piece: str
    start: int
    end: int
    is_special: bool = False
    is_unknown: bool = False
    token_bytes: bytes = b""


class AttentionMatrix(msgspec.Struct, frozen=True):
    """The weights of one head of one layer, row by row."""

    layer: int
    head: int
    weights: Values


def numbers_of(values: Values) -> list[float]:
    """The values of a row, as JSON has them."""
    import numpy as np

    numbers: list[float] = np.asarray(values).tolist()
    return numbers


def single(value: float) -> float:
    """A number as answers have it: of float32, whichever way it was computed."""
    import numpy as np

    return float(np.float32(value))
