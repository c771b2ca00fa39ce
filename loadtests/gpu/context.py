"""What a section is given, and what it finds: claims, rows of tables, and what was left out.

A claim is a check, which fails the run where it does not hold, or a goal, which says how fast
something is. Rows are plain JSON: the report makes tables of them, each key a column. `keep` writes
what there is so far, so that a section that is stopped has a record too.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rich.console import Console

from loadtests.gpu.sources import digest_of

Findings = dict[str, Any]
Claim = dict[str, Any]
Peers: TypeAlias = Literal["none", "eager", "compiled"]
ClaimKind = Literal["check", "goal"]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command: plain values, as it crosses to other processes."""

    out: Path
    device: str  # cuda or cpu
    is_tiny: bool
    shapes: tuple[str, ...] = ()
    peers: Peers = "compiled"

    @property
    def work(self) -> Path:
        """A folder for exported models, which sections and later runs share."""
        return self.out / "work"

    @property
    def precision(self) -> Literal["fp32", "fp16"]:
        """The precision that is checked first."""
        return "fp16" if self.device == "cuda" else "fp32"


@dataclass(slots=True)
class Parts:
    """Seconds by part of some work, such as export, open, run and reference."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of a block to a part."""
        started_s = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - started_s)

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def cells(self) -> dict[str, float]:
        """The parts as columns of a row."""
        return {f"{name}, s": round(seconds, 2) for name, seconds in self.seconds.items()}


@dataclass(slots=True)
class Context:
    """One section of a run, by its number and name. Times are on the clock of `time.monotonic`."""

    run: Run
    section: str
    ends_s: float
    path: Path | None = None  # of the record, where it is kept
    started_s: float = field(default_factory=time.monotonic)
    parts: Parts = field(default_factory=Parts)
    findings: Findings = field(
        default_factory=lambda: {"summary": [], "claims": [], "left_out": [], "tables": {}}
    )

    @property
    def device(self) -> str:
        return self.run.device

    @property
    def is_tiny(self) -> bool:
        return self.run.is_tiny

    @property
    def number(self) -> int:
        """The section's number, which its name begins with."""
        return int(self.section.partition(" ")[0])

    @property
    def left_s(self) -> float:
        """Seconds of the section's share, at least 0."""
        return max(0.0, self.ends_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the section should end with what it has, and say what it leaves out."""
        return not self.left_s

    def say(self, what: str) -> None:
        """Print a line of progress, and keep what was found."""
        self.keep()
        say(f"{self.section}: {what} ({self.left_s:.0f} s left of its share)")

    def summarize(self, sentence: str) -> None:
        self.findings["summary"].append(sentence)

    def leave_out(self, sentence: str) -> None:
        self.findings["left_out"].append(sentence)

    def row(self, table: str, **cells: object) -> None:
        """Add a row to the table of a title; what is no word as a key comes by `**`."""
        plain = {key: _plain(value) for key, value in cells.items()}
        self.findings["tables"].setdefault(table, []).append(plain)

    def check(
        self,
        claim: str,
        holds: bool,
        found: str = "",
        expected: str = "yes",
        kind: ClaimKind = "check",
    ) -> None:
        """A claim; `found` is what was seen."""
        found = found or ("yes" if holds else "no")
        said = {"claim": claim, "found": found, "expected": expected, "kind": kind}
        self.findings["claims"].append(said | {"holds": bool(holds)})

    def at_most(
        self, claim: str, figure: float, limit: float, unit: str = "", kind: ClaimKind = "check"
    ) -> None:
        """A claim that holds up to a limit; a figure that is not a number does not hold."""
        found, expected = f"{figure:.4g} {unit}".strip(), f"at most {limit:g} {unit}".strip()
        self.check(claim, figure <= limit, found, expected, kind)

    def at_least(
        self, claim: str, figure: float, limit: float, unit: str = "", kind: ClaimKind = "check"
    ) -> None:
        """A claim that holds from a limit on."""
        found, expected = f"{figure:.4g} {unit}".strip(), f"at least {limit:g} {unit}".strip()
        self.check(claim, figure >= limit, found, expected, kind)

    def keep(self, state: str = "begun", error: str = "") -> None:
        """Write the record as it is now: what the section is, findings, and times of parts."""
        if self.path is None:
            return
        seconds, share_s = time.monotonic() - self.started_s, self.ends_s - self.started_s
        parts = {name: round(part_s, 1) for name, part_s in self.parts.seconds.items()}
        record = {
            "number": self.number,
            "name": self.section.partition(" ")[2],
            "device": self.device,
            "is_tiny": self.is_tiny,
            "sources": digest_of(),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 1),
            "share_s": round(share_s, 1),
            "state": state,
            "error": error,
        }
        write_json(self.path, record | {"parts_s": parts, "findings": self.findings})


def _plain(value: object) -> object:
    """What JSON has: it has no number for what is none."""
    return None if isinstance(value, float) and value - value != 0 else value


def write_json(path: Path, content: object) -> None:
    """Write a file whole or not at all; `ValueError` for numbers that JSON has not."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1, allow_nan=False), encoding="utf-8")
    part.replace(path)


def say(line: str) -> None:
    """Print a line to standard error, never wrapped: lines are read in logs."""
    Console(file=sys.stderr, soft_wrap=True, highlight=False, markup=False).print(line)
