"""Lines on stderr about the import and export of folders, with the time that is left.

On a terminal the current step is a line that is drawn again each second; elsewhere each step has a
line of its own.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.text import Text

from commands.errors import errors

ADAPTER = "adapter"  # in place of a task
ANSWERS = {  # by the shares of texts that keep them, of `export/checks/agreement.py`
    "same_labels": "labels",
    "same_label_sets": "labels",
    "same_entities": "entities",
    "same_answers": "answers",
    "same_words": "words",
    "same_neighbours": "nearest texts",
}


def decisions(facts: Mapping[str, Any]) -> str:
    """The decisions in words, each with the flag that changes it."""
    if facts["task"] == ADAPTER:
        return f"an adapter of {facts['base']}, rank {facts['rank']}"
    parts = [
        f"{facts['task']} (--task)",
        f"{facts['precision']} (--precision)",
        f"at most {facts['max_tokens']:,} tokens"
        + (" (--context)" if facts["task"] == "text-generation" else ""),
    ]
    if facts["pooling"]:
        parts.append(f"pooling: {facts['pooling']} (--pooling, --normalize)")
    if facts["has_chat_template"]:
        parts.append("with a chat template")
    return ", ".join(parts)


def cost_of_rounding(precision: str, parity: Mapping[str, float]) -> str:
    """The answers and outputs that rounding changes; empty for a graph that is not rounded."""
    if not precision.startswith("int"):
        return ""
    number = round(parity.get("texts_compared", 0))
    parts = [
        f"other {noun} for {round((1 - parity[name]) * number)} of {number} texts"
        for name, noun in ANSWERS.items()
        if name in parity
    ]
    if "network_changed_tokens" in parity:
        parts.append(f"other tokens at {parity['network_changed_tokens']:.1%} of places")
    if "min_cosine" in parity:
        parts.append(f"outputs by cosine {parity['min_cosine']:.4f} at least")
    return f"{precision} beside float32: {'; '.join(parts)}" if parts else ""


class Steps:
    """The steps of one export, with the time left by its estimate."""

    def __init__(self, show: Callable[[str], None], name: str, seconds: float) -> None:
        self._show, self._name, self._seconds = show, name, seconds
        self._start_s = time.monotonic()

    def step(self, text: str) -> None:
        """Show the step that begins."""
        passed = time.monotonic() - self._start_s
        left = self._seconds - passed
        about = f"about {left:.0f} s left" if left >= 1 else f"{passed:.0f} s so far"
        self._show(f"{self._name}: {text} ({about})")


class Reports:
    """The lines that `attendant serve` prints before it serves."""

    def say(self, line: str) -> None:
        errors.print(Text(line), soft_wrap=True)

    @contextmanager
    def steps(self, name: str, seconds: float) -> Iterator[Steps]:
        """While entered, the steps of an export; `seconds` is the estimate of its duration."""
        if not errors.is_terminal:
            yield Steps(self.say, name, seconds)
            return
        with errors.status(f"{name}: starting") as status:
            yield Steps(lambda line: status.update(Text(line)), name, seconds)
