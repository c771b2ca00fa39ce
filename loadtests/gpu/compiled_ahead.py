"""Compiles PyTorch's networks side by side, before they are timed one after the other.

torch.compile keeps what it compiles in a folder that all processes share, so that what one process
has compiled takes another a few seconds. To compile is work of one core and of minutes in all;
side by side it is a minute. Each is a process that ends by itself, or when its time is over.
docs/cuda.md says what was verified on CUDA.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess

from loadtests.gpu import speed_decoders, speed_encoders
from loadtests.gpu.context import Context
from loadtests.gpu.shapes import decoders, encoders
from loadtests.gpu.speed_encoders import Task

Compile = Callable[[Context], None]
MAX_PROCESSES = 12  # side by side; each has a network in the device's memory


@dataclass
class CompiledAhead:
    """Processes that compile; `done` are the tasks that ended well."""

    processes: dict[Task, BaseProcess] = field(default_factory=dict)

    def start(self, context: Context, tasks: Mapping[Task, Compile]) -> None:
        """Begin with as many as may run side by side; the others are not compiled ahead."""
        method = multiprocessing.get_context("forkserver")
        for task in list(tasks)[:MAX_PROCESSES]:
            self.processes[task] = method.Process(target=_compile, args=(tasks[task], context))
            self.processes[task].start()

    def wait(self, time_s: float) -> None:
        """Wait until all have ended, and end those that take longer."""
        ends_s = time.monotonic() + time_s
        for process in self.processes.values():
            process.join(max(0.0, ends_s - time.monotonic()))
            if process.is_alive():
                process.terminate()
                process.join()

    @property
    def done(self) -> frozenset[Task]:
        ended = {task for task, process in self.processes.items() if process.exitcode == 0}
        return frozenset(ended)


def tasks_of(context: Context) -> dict[Task, Compile]:
    """What is worth compiling ahead, the most important first."""
    tasks: dict[Task, Compile] = {}
    loads = speed_encoders.loads(is_tiny=context.is_tiny)
    for name in encoders(is_tiny=context.is_tiny):
        for load in loads:
            tasks[name, load.name] = partial(_compile_load, name, load.name)
    for num_rows in speed_decoders.Sizing.of(is_tiny=context.is_tiny).num_rows[:2]:
        for name in decoders(is_tiny=context.is_tiny):
            tasks[name, str(num_rows)] = partial(_compile_rows, name, num_rows)
    return tasks


def _compile_load(name: str, load_name: str, context: Context) -> None:
    loads = {load.name: load for load in speed_encoders.loads(is_tiny=context.is_tiny)}
    speed_encoders.compile_load(context, name, loads[load_name])


def _compile_rows(name: str, num_rows: int, context: Context) -> None:
    speed_decoders.compile_rows(context, name, num_rows)


def _compile(compile_one: Compile, context: Context) -> None:
    # One thread each: there are others beside it. Read when the compiler is imported.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    compile_one(context)
