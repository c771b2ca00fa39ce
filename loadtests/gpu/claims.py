"""A claim with its figure: what is measured, and the limit or the goal that it is held to.

A check that does not hold is a failure of the run. A goal that is missed is reported, and the run
is good all the same: it says how fast something is, not whether it is right.
"""

from typing import Any, Literal

Claim = dict[str, Any]
Kind = Literal["check", "goal"]


def at_most(claim: str, figure: float, limit: float, unit: str = "", kind: Kind = "check") -> Claim:
    """A claim that holds up to a limit; a figure that is not a number does not hold."""
    return _claim(claim, figure, f"at most {limit:g}", unit, kind, holds=figure <= limit)


def at_least(
    claim: str, figure: float, limit: float, unit: str = "", kind: Kind = "check"
) -> Claim:
    """A claim that holds from a limit on."""
    return _claim(claim, figure, f"at least {limit:g}", unit, kind, holds=figure >= limit)


def is_true(claim: str, holds: bool, found: str = "", expected: str = "yes") -> Claim:
    """A claim that is no single figure; `found` is what was seen."""
    return {
        "claim": claim,
        "found": found or ("yes" if holds else "no"),
        "expected": expected,
        "kind": "check",
        "holds": bool(holds),
    }


def _claim(
    claim: str, figure: float, expected: str, unit: str, kind: Kind, *, holds: bool
) -> Claim:
    number = float(figure)
    text = f"{number:.4g}"
    return {
        "claim": claim,
        # JSON has no number for what is none.
        "figure": number if number - number == 0 else None,
        "found": f"{text} {unit}".strip(),
        "expected": f"{expected} {unit}".strip(),
        "unit": unit,
        "kind": kind,
        "holds": bool(holds),
    }
