"""What a section is given: where models run, where files are, and how much time is left.

Crosses from one process to another, so it holds plain values only. A section returns a dictionary
of plain JSON, all of whose keys are optional:

    summary    sentences that say what was found
    claims     what `claims.at_most` and its siblings return: a figure and its limit or goal; with
               `in_table`, a row of a table says it too
    tables     [{"title": ..., "columns": [...], "rows": [[...], ...]}]
    left_out   sentences that say what was not run, and why
    any other  raw figures, kept in the JSON report

docs/cuda.md says what was verified on CUDA.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

Findings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command."""

    out: Path
    device: str  # cuda or cpu
    is_tiny: bool

    @property
    def work(self) -> Path:
        """A folder for exported models, which sections and later runs share."""
        return self.out / "work"


@dataclass(frozen=True, slots=True)
class Context:
    """One section of a run. `ends_s` is on the clock of `time.monotonic`."""

    run: Run
    section: str
    ends_s: float

    @property
    def device(self) -> str:
        return self.run.device

    @property
    def is_tiny(self) -> bool:
        return self.run.is_tiny

    @property
    def work(self) -> Path:
        return self.run.work

    @property
    def left_s(self) -> float:
        """Seconds of the section's share; negative when it should have ended."""
        return self.ends_s - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the section should end with what it has, and say so in `left_out`."""
        return self.left_s <= 0

    def until(self, share: float) -> "Context":
        """A context that ends after a share of the time that is left."""
        return Context(self.run, self.section, time.monotonic() + share * max(0.0, self.left_s))

    def say(self, what: str) -> None:
        """Print a line of progress."""
        say(f"{self.section}: {what} ({max(0.0, self.left_s):.0f} s left of its share)")


def say(line: str) -> None:
    """Print a line to standard error, never wrapped: lines are read in logs."""
    Console(file=sys.stderr, soft_wrap=True, highlight=False, markup=False).print(line)
