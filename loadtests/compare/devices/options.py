"""The network that is measured on a device, its version, and the workers in this process.

docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

import typer

from loadtests.compare.devices.machine import MachineLimits, machine_limits
from loadtests.compare.devices.shapes import SHAPES, build, is_encoder
from loadtests.compare.worker import Run, Setup
from loadtests.compare.workers import attendant
from loadtests.measure.records import Options, option
from service.runtime.cpus import available_cpus

Peer: TypeAlias = Literal["none", "eager", "compiled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions(Options):
    """A network whose graphs are in a repository, and what it is compared with."""

    shape: str = option("", f"Network: {', '.join(SHAPES)}.")
    repository: Path = option(Path("build/devices"), "Where its graphs are, or are written.")
    device: str = option("cpu", "Where it runs: cpu or cuda.")
    peer: Peer = option("eager", "transformers as it is, compiled, or none.")

    @property
    def is_tiny(self) -> bool:
        return self.shape.startswith("tiny-")

    @property
    def threads(self) -> int:
        """One where models are tiny: on a busy machine two would wait for each other."""
        return 1 if self.is_tiny else available_cpus()

    @property
    def limits(self) -> MachineLimits:
        return machine_limits(self.device, is_tiny=self.is_tiny)

    def version(self, *, is_text: bool) -> Path:
        """The folder with its graphs; `BadParameter` where the shape is of the other kind."""
        known = [name for name in SHAPES if is_encoder(name) != is_text]
        if self.shape not in known:
            raise typer.BadParameter(f"--shape is {self.shape!r}, expected one of {known}")
        if not (folder := self.repository / self.shape / "1").exists():
            build(self.repository, self.shape, self.device)
        return folder

    def ours(self, stack: ExitStack, **options: object) -> Run:
        """Our worker, opened when it is first given work."""
        known = {"name": self.shape, "device": self.device}
        setup = Setup(str(self.repository), self.threads, "", "", known | options)
        return _lazily(lambda: attendant.open_on(stack, setup))

    def theirs(self, **options: object) -> Run:
        """The same of transformers', with random weights in bfloat16."""
        known = {"config": SHAPES[self.shape], "device": self.device, "dtype": "bfloat16"}
        setup = Setup("", self.threads, "", "", known | options)

        def opened() -> Run:
            from loadtests.compare.workers import transformers  # it may be absent

            return transformers.open_engine(setup)

        return _lazily(opened)


def _lazily(open_engine: Callable[[], Run]) -> Run:
    """An engine that is opened with its first work, so that a fault is that work's."""
    opened = cache(open_engine)
    return lambda work: opened()(work)
