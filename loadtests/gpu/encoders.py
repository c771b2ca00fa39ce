"""Rows per second of encoders: our graphs in the server's session, beside transformers' model.

All ways take the same batches of token ids from the host and give logits to the host, as a server
needs them. PyTorch computes in bfloat16 with its fused attention, without a mask where all rows
have one length. What is timed of ours gives the logits of the network that was exported.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from export.checks.parity import pad
from loadtests.compare.worker import Run, Setup, Work
from loadtests.compare.workers import attendant
from loadtests.gpu.counts import encoder_flops
from loadtests.gpu.measuring import CHECKED, Goal, machine_limits, with_goals
from loadtests.gpu.models import Model
from loadtests.gpu.parity import torch_device
from loadtests.gpu.references import computed
from loadtests.gpu.shapes import SHAPES, config_of, network_of
from loadtests.load.lengths import WINDOW_ROWS, mixed_sizes
from loadtests.measure.records import (
    Column,
    Figure,
    Measure,
    Options,
    Rounds,
    Turn,
    Way,
    by_columns,
)
from service.runtime.cpus import available_cpus

FIRST_ID = 5  # ids below are of special tokens
NUM_REAL_ROWS = 128
EAGER, COMPILED = "transformers, bf16", "torch.compile, bf16"
Peer: TypeAlias = Literal["", "eager", "compiled"]
MAX_ERROR = 5.0  # percent of the logits' size: bf16 has 3 digits, kept over 24 layers


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions(Options):
    """A network whose graphs are in a repository, and what it is compared with."""

    rounds: int = 100
    shape: str
    repository: Path
    device: str
    peer: Peer = ""
    is_tiny: bool = False

    def ours(self, stack: ExitStack, **options: object) -> Run:
        """Our worker, opened when it is first given work, in this process."""
        known = {"name": self.shape, "device": self.device}
        setup = Setup(str(self.repository), self.threads, "", "", known | options)
        return lazily(lambda: attendant.open_on(stack, setup))

    def theirs(self, **options: object) -> Run:
        """The same of transformers', with random weights in bfloat16."""
        known = {"config": SHAPES[self.shape], "device": self.device, "dtype": "bfloat16"}
        setup = Setup("", self.threads, "", "", known | options)

        def opened() -> Run:
            from loadtests.compare.workers import transformers  # it may be absent

            return transformers.open_engine(setup)

        return lazily(opened)

    @property
    def threads(self) -> int:
        """One where models are tiny: on a busy machine two would wait for each other."""
        return 1 if self.is_tiny else available_cpus()

    @property
    def limits(self) -> Any:
        return machine_limits(self.device, is_tiny=self.is_tiny)


def lazily(open_engine: Callable[[], Run]) -> Run:
    """An engine that is opened with its first work, so that a fault is that work's."""
    opened = cache(open_engine)
    return lambda work: opened()(work)


def loads(*, is_tiny: bool) -> dict[str, tuple[list[int], int]]:
    """Lengths of rows, and rows of a batch, the most important first; real lengths are sorted."""
    num_rows, batch_rows, longest = (8, 4, 64) if is_tiny else (NUM_REAL_ROWS, WINDOW_ROWS, 512)
    real = sorted(min(size, longest) for size in mixed_sizes(num_rows)), batch_rows
    if is_tiny:
        return {"2 x 32": ([32] * 2, 2), "real lengths": real}
    return {"8 x 128": ([128] * 8, 8), "8 x 512": ([512] * 8, 8), "real lengths": real}


def ways(options: ShapeOptions, stack: ExitStack) -> dict[str, Way]:
    """Each load with each of our graphs, and with the peer."""
    config, found = config_of(options.shape), dict[str, Way]()
    network = network_of(options.shape).to(torch_device(options.device))
    engines, rates = {}, options.limits.flops_per_s
    for graph in Model(options.shape, "", options.repository).graphs():
        name = f"ours, {graph.precision}, {graph.layout or 'packed'}"
        engines[name] = options.ours(stack, task="classify", graph=graph.path.name)
    if options.peer == "compiled":
        how = {"backend": "eager"} if options.is_tiny else {"mode": "reduce-overhead"}
        engines[COMPILED] = options.theirs(task="classify", compile=how)
    elif options.peer:
        engines[EAGER] = options.theirs(task="classify")
    generator = np.random.default_rng(1)
    for load, (lengths, batch_rows) in loads(is_tiny=options.is_tiny).items():
        rows = [generator.integers(FIRST_ID, config.vocab_size, size).tolist() for size in lengths]
        work, flops = Work(rows, batch_rows), encoder_flops(config, lengths)
        batches = (pad(each, 0) for each in work.batches())
        expected = [
            computed(network, [batch[name] for name in network.input_names]) for batch in batches
        ]
        for name, run in engines.items():
            logits = None if name in (EAGER, COMPILED) else np.concatenate(expected)
            least_s = flops / rates[name.split(", ")[1]]
            found[f"{load}: {name}"] = partial(_turn, run, work, least_s, logits)
    return found


def _turn(run: Run, work: Work, least_s: float, expected: np.ndarray | None) -> Turn:
    answer = run(work)
    turn = {"seconds": answer.seconds, "rows": len(work.rows), "share": least_s / answer.seconds}
    if expected is not None:
        error = np.linalg.norm(np.array(answer.outputs) - expected)
        turn["error"] = float(error / (np.linalg.norm(expected) or 1.0))
    return turn


def figures(rounds: Rounds) -> list[Figure]:
    columns = (
        Column("rows/s", "rows/seconds"),
        Column("share of the matrix rate", "share", "%"),
        Column(CHECKED, "error", "%", goals=dict.fromkeys(rounds, MAX_ERROR), at_most=True),
        Column(f"over {EAGER}", "rows/seconds", over=EAGER),
        Column(f"over {COMPILED}", "rows/seconds", over=COMPILED),
    )
    goals = [Goal(f"over {COMPILED}", 1.2)]
    goals += [Goal("share of the matrix rate", 50.0, load) for load in ("8 x 512", "2 x 32")]
    return with_goals(by_columns(*columns)(rounds), goals, "rows/s")


ENCODERS = Measure(
    "gpu-encoders",
    "Encoders' graphs beside transformers, and their share of the device's matrix rate",
    "Encoders on a GPU",
    ShapeOptions,
    ways,
    figures,
)
