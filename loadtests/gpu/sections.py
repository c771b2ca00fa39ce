"""The sections of the check, in the order in which they run: the most valuable first.

Each is a function `run(context)` of a module, named here, so that a section whose imports fail is
one failed section. `weight` is its share of the time, `least_s` the time without which it is not
begun. The names of shapes are here too: the command line knows them without PyTorch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SHAPES = ("bert-base", "gpt2", "smollm2-360m", "bert-large", "gpt2-xl", "llama-1b")
TINY_SHAPES = ("tiny-encoder", "tiny-decoder", "tiny-llama")
NUM_USUAL = 3  # of the first shapes; the others are large, and are built where they are named


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its number and name, and the function that it is."""

    number: int
    name: str
    title: str
    function: str  # MODULE:NAME
    weight: float
    least_s: float = 12.0
    is_gate: bool = False  # where it fails, no other section is run

    @property
    def filename(self) -> str:
        return f"{self.number:02d}-{self.name}.json"

    @property
    def label(self) -> str:
        return f"{self.number} {self.name}"


HERE = "loadtests.gpu."
SECTIONS = (
    # A section that ends early gives its time to those behind it.
    Section(1, "environment", "The machine", f"{HERE}environment:run", 0.04, 4.0, is_gate=True),
    Section(2, "parity", "The most used kinds", f"{HERE}parity:run", 0.14),
    Section(3, "server", "The server from end to end", f"{HERE}server:run", 0.12),
    Section(4, "kinds", "Other kinds, then bf16", f"{HERE}parity:run", 0.14),
    Section(5, "sameness", "Equal outputs", f"{HERE}sameness:run", 0.10),
    Section(6, "speed", "Speed", f"{HERE}speed:run", 0.26, 20.0),
    Section(7, "server-cost", "What the server adds", f"{HERE}speed:server_cost", 0.07, 15.0),
    Section(8, "layouts", "Blocks beside slots", f"{HERE}speed:layouts", 0.07, 15.0),
    Section(9, "loading", "Rounds of loading", f"{HERE}server:loading", 0.04),
    Section(10, "rest", "Other precisions", f"{HERE}parity:run", 0.02),
)


def chosen(text: str, sections: Sequence[Section]) -> list[int]:
    """The numbers in a list such as `2,6`, all of them for an empty one; or `ValueError`."""
    known = [str(section.number) for section in sections]
    return sorted(map(int, set(_named("--sections", text, known)) or known))


def shapes_of(text: str, *, is_tiny: bool) -> tuple[str, ...]:
    """The shapes in a list such as `bert-base,gpt2`, the usual ones for an empty one.

    Raises `ValueError`.
    """
    known = TINY_SHAPES if is_tiny else SHAPES
    return _named("--shapes", text, known) or known[:NUM_USUAL]


def _named(flag: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    if set(names) - set(known):
        raise ValueError(f"{flag}: {text}, expected some of {', '.join(known)}")
    return names
