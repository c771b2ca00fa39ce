"""The sections of the check, in the order in which they run.

Each is a function `run(context) -> findings` in a file of its own, named here by its module, so
that a section whose imports fail is one failed section. `weight` is its share of the time. What
takes long to prepare is begun with the run, beside the sections before the one that needs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its number and name, and the module whose `run` it is."""

    number: int
    name: str
    title: str
    module: str
    weight: float
    begins: str = ""  # module whose `begin(run)` is called when the run begins

    @property
    def filename(self) -> str:
        return f"{self.number:02d}-{self.name}.json"

    @property
    def label(self) -> str:
        return f"{self.number} {self.name}"


BUILDS = "loadtests.gpu.builds"
SECTIONS = (
    # By number. A section that ends early gives its time to those behind it.
    Section(1, "environment", "The machine", "loadtests.gpu.environment", 0.02),
    Section(2, "parity", "Outputs beside PyTorch's", "loadtests.gpu.parity", 0.22),
    Section(3, "placement", "Nodes on the device", "loadtests.gpu.placement", 0.05),
    Section(4, "server", "The server from end to end", "loadtests.gpu.server", 0.14),
    Section(5, "sameness", "Equal outputs", "loadtests.gpu.sameness", 0.08),
    Section(6, "speed", "Speed", "loadtests.gpu.speed", 0.30, BUILDS),
    Section(
        7, "server-cost", "The server over its session", "loadtests.gpu.server_cost", 0.08, BUILDS
    ),
    Section(8, "layouts", "The paged cache beside slots", "loadtests.gpu.layouts", 0.08, BUILDS),
)


def chosen(text: str, sections: Sequence[Section]) -> list[int]:
    """The numbers in a list such as `2,6`, all of them for an empty one; or `ValueError`."""
    known = [section.number for section in sections]
    numbers = [int(part) if part.strip().isdecimal() else -1 for part in text.split(",") if part]
    if not text.strip():
        return known
    if not numbers or set(numbers) - set(known):
        raise ValueError(f"{text} is given, expected some of {', '.join(map(str, known))}")
    return sorted(set(numbers))
