"""`Peer`: an engine or a server that takes turns with ours."""

from dataclasses import dataclass, field
from typing import Any

from loadtests.compare.environments import MODELS, Conversion, Environment
from loadtests.compare.worker import Work


@dataclass(frozen=True, slots=True)
class Peer:
    """One row of the comparison: one program in one precision, doing one task.

    Precision `float32` must give the reference's tokens; another name says what is rounded.
    """

    name: str
    environment: Environment
    worker: str  # module below loadtests.compare: the program that drives it
    task: str  # classify or generate
    precision: str
    model: Conversion | str  # made for it, or bert or gpt2 as Hugging Face writes them
    options: dict[str, Any] = field(default_factory=dict)  # what its worker knows
    in_quick: bool = False
    runs_in_ours: bool = False  # the worker is a client; what it starts is in `environment`
    only_equal: bool = False  # it refuses prompts of different lengths

    @property
    def folder(self) -> str:
        """What it opens."""
        return str(MODELS / self.model if isinstance(self.model, str) else self.model.folder)

    def install(self) -> None:
        """Environment and model, unless they are there; or raise `NotAvailable`."""
        self.environment.install()
        if isinstance(self.model, Conversion):
            self.model.environment.install()
            self.model.make()

    def can_do(self, work: Work) -> bool:
        return not self.only_equal or len({len(row) for row in work.rows}) == 1
