"""The result of comparing a model with what it was made of: a row for each thing compared.

Knows nothing about networks, files or servers: it gets pairs of values, ours and theirs. Arrays may
differ by a limit, in parts of the largest value where that is above 1; all else must be equal.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from models.errors import CheckpointError

MAX_DIFFERENCE = 1e-3
EXACT = "tokens", "conversations", "labels"  # what has no numbers


class Pair(NamedTuple):
    """One text, conversation or image by its name, and what both sides make of it."""

    name: str
    ours: Any
    theirs: Any

    @property
    def difference(self) -> float:
        """Difference of two arrays, not finite where one is not; of other values 0 or infinity."""
        if not isinstance(self.theirs, np.ndarray):
            return 0.0 if self.ours == self.theirs else math.inf
        if self.ours.shape != self.theirs.shape:
            return math.inf
        largest = max(1.0, float(np.abs(self.theirs).max(initial=0.0)))
        return float(np.abs(self.ours - self.theirs).max(initial=0.0) / largest)

    @property
    def shown(self) -> str:
        """Where the values differ first."""
        if isinstance(self.theirs, np.ndarray):
            if self.ours.shape == self.theirs.shape:
                return self.name
            return f"{self.name}: {list(self.ours.shape)}, not {list(self.theirs.shape)} values"
        place = _first_place(self.ours, self.theirs)
        here = slice(max(0, place - 2), place + 6)
        if not isinstance(self.ours, Sequence) or not isinstance(self.theirs, Sequence):
            return f"{self.name}: {self.ours!r}, not {self.theirs!r}"
        return f"{self.name}, from place {place}: {self.ours[here]!r}, not {self.theirs[here]!r}"


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one comparison; `why_not` says why something was not compared."""

    what: str
    by: str = ""  # the library and its version; empty where nothing was compared
    number: int = 0
    equal: int = 0  # of these
    max_difference: float | None = 0.0  # None where one is not finite
    limit: float = MAX_DIFFERENCE
    allowed: int = 0  # of `number` that may differ, where the other side may be at fault
    first: str = ""  # what differs first, and where
    note: str = ""  # what of the other side is not as the folder has it
    why_not: str = ""

    @classmethod
    def of(
        cls,
        what: str,
        by: str,
        pairs: Iterable[Pair],
        limit: float = MAX_DIFFERENCE,
        note: str = "",
        allowed: int = 0,
    ) -> Self:
        """The row of these pairs, of which `allowed` may differ by more than the limit."""
        largest, number, equal, first = 0.0, 0, 0, ""
        for pair in pairs:
            difference = pair.difference
            number += 1
            is_equal = difference <= limit  # also where it is no number
            equal += is_equal
            first = first if first or is_equal else pair.shown
            largest = difference if math.isnan(difference) else max(largest, difference)
        found = largest if math.isfinite(largest) else None
        return cls(what, by, number, equal, found, limit, allowed, first, note)

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs by more than is allowed, or nothing was compared."""
        return self.number - self.equal <= self.allowed

    def __str__(self) -> str:
        if not self.by:
            return f"{self.what}: not compared, as {self.why_not}"
        if self.what in EXACT:
            text = f"{self.equal} of {self.number} {NOUNS[self.what]} as {self.by}"
        elif self.max_difference is None:
            text = f"{self.what} are not those of {self.by}"
        else:
            text = f"{self.what} within {self.max_difference:.0e} of {self.by}"
        return text + f" ({self.note})" * bool(self.note)

    def to_dict(self) -> dict[str, Any]:
        """The row for a manifest; numbers are rounded, so that equal imports give equal files."""
        largest = self.max_difference
        return asdict(self) | {"max_difference": None if largest is None else _rounded(largest)}


NOUNS = {
    "tokens": "texts give the same tokens",
    "conversations": "conversations give the same text",
    "labels": "labels are the same, in their order,",
}


@dataclass(frozen=True, slots=True)
class Certificate:
    """All rows of one comparison, and whose network was compared."""

    rows: tuple[Row, ...] = ()
    network: str = ""  # the origin of our side: its name in models/networks/kinds.py

    @classmethod
    def not_compared(cls, why: str, network: str = "") -> Self:
        return cls((Row("the import", why_not=why),), network)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The certificate of a manifest."""
        return cls(tuple(Row(**each) for each in values["rows"]), values["network"])

    @property
    def is_equal(self) -> bool:
        return all(row.is_equal for row in self.rows)

    def __str__(self) -> str:
        if not any(row.by for row in self.rows):
            return f"not compared: {'; '.join(dict.fromkeys(row.why_not for row in self.rows))}"
        return f"compared: {'; '.join(map(str, self.rows))}"

    def to_dict(self) -> dict[str, Any]:
        """The certificate for a manifest."""
        rows = [row.to_dict() for row in self.rows]
        return {"network": self.network, "rows": rows, "text": str(self)}

    def check(self) -> None:
        """Raise `CheckpointError` where something differs by more than is allowed."""
        if self.is_equal:
            return
        first = next(row for row in self.rows if not row.is_equal)
        limit = f", and at most {first.limit:.0e} is allowed" * (first.what not in EXACT)
        raise CheckpointError(
            f"the import differs from the folder's own network: {first}{limit}; the first that "
            f"differs is {first.first}. Nothing is written; --accept-difference goes on in spite "
            "of it, and keeps the difference in the manifest"
        )


def _rounded(number: float) -> float:
    return float(f"{number:.0e}")


def _first_place(ours: Any, theirs: Any) -> int:  # noqa: ANN401 - of two values that are compared
    """The index at which two sequences differ; 0 of other values."""
    try:
        both = zip(ours, theirs, strict=False)
        return next(
            (index for index, (our, their) in enumerate(both) if our != their),
            min(len(ours), len(theirs)),
        )
    except TypeError:
        return 0
