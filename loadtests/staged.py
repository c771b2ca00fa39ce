"""`attendant serve` that says where its processor time goes: see `stages.py`.

    python -m loadtests.staged --model-repository model_repository ...

Functions that stand for a stage are wrapped before the server is built. Each thread has a stack of
stages, and its CPU clock between two stamps belongs to the stage on top, so every nanosecond is
counted once. What a stamp itself costs is measured first and taken off. Time of threads that have
no Python frames, and of all that is in no stage, is what the kernel says a thread took besides.

On SIGUSR1 the server prints one line of JSON: nanoseconds so far by stage.
"""

import importlib
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEASURING = "(measuring)"
OUTSIDE = "outside"
MAIN_OUTSIDE = "grpc.aio and asyncio"
FORMING = "engine: waiting and forming"
CALIBRATION_CALLS = 20_000
# By stage, the functions that are it: module, class or nothing, function.
STAGES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "event loop: polling": (("selectors", "EpollSelector", "select"),),
    "admission": (
        ("service.rpc.door", "Door", "_enter"),
        ("service.rpc.door", "Door", "_leave"),
        ("service.rpc.admission", "Admission", "admit"),
        ("service.rpc.admission", "Admission", "_leave"),
    ),
    "parsing": (("service.rpc.door", "", "_read_unless_long"),),
    "checks, to arrays": (
        ("service.repository", "ModelRepository", "find"),
        ("service.rpc.inference", "", "to_infer_request"),
        ("service.models", "", "to_graph"),
        ("service.models", "", "decode"),
    ),
    "tokenizing": (("service.tokenizer", "TextTokenizer", "encode"),),
    "the model's methods": (("service.rpc.inference", "InferenceService", "ModelInfer"),),
    "queue handover": (
        ("service.engine", "BatchEngine", "run"),
        ("service.engine", "BatchEngine", "_resolve"),
    ),
    FORMING: (("service.engine", "BatchEngine", "_next_batch"),),
    "engine: collating": (("service.engine", "BatchEngine", "_collate"),),
    "engine: session run": (("service.runtime", "OnnxSession", "run"),),
    "engine: splitting": (("service.engine", "BatchEngine", "_split"),),
    "engine: answering": (
        ("service.engine", "BatchEngine", "_begin"),
        ("service.engine", "BatchEngine", "_answer"),
    ),
    "interpretation": (
        ("service.models", "TensorModel", "_outputs_of"),
        ("service.models", "", "first_outputs"),
        ("service.models", "", "softmax"),
    ),
    "serialising": (
        ("service.rpc.inference", "", "build_response"),
        ("service.rpc.door", "", "_write_holding"),
    ),
    "metrics": (
        ("service.metrics", "ModelMetrics", "request_succeeded"),
        ("service.metrics", "ModelMetrics", "batch_ran"),
    ),
}
# By the name that a thread has, the stage of what it does outside of all others.
THREADS = {
    "MainThread": MAIN_OUTSIDE,
    "_poll_wrapper": "grpc: completion queue",
    "event_engine": "grpc: transport",
    "model-": FORMING,
    "tokenizer": "tokenizing",
}


@dataclass(slots=True)
class _Clock:
    """One thread's stages; touched by that thread, read by the one that reports."""

    thread_id: int = field(default_factory=threading.get_native_id)
    last_ns: int = field(default_factory=time.thread_time_ns)
    stack: list[str] = field(default_factory=lambda: [OUTSIDE])
    by_stage: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    num_inside: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    num_outside: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def enter(self, stage: str) -> None:
        before = self.stack[-1]
        self.num_inside[stage] += 1
        self.num_outside[before] += 1
        self.stack.append(stage)
        now_ns = time.thread_time_ns()
        self.by_stage[before] += now_ns - self.last_ns
        self.last_ns = now_ns

    def leave(self) -> None:
        now_ns = time.thread_time_ns()
        self.by_stage[self.stack.pop()] += now_ns - self.last_ns
        self.last_ns = now_ns


class Stages:
    """Where the time of all threads goes."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._clocks: list[_Clock] = []
        self._inner_ns = self._outer_ns = 0.0
        self._calibrate()

    def wrapped(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose time is its stage's."""
        if inspect.iscoroutinefunction(function):

            async def awaited(*args: object, **named: object) -> object:
                return await _Stepping(self._clock, stage, function(*args, **named))

            return awaited

        def timed(*args: object, **named: object) -> object:
            clock = self._clock()
            clock.enter(stage)
            try:
                return function(*args, **named)
            finally:
                clock.leave()

        return timed

    def report(self) -> dict[str, float]:
        """Nanoseconds by stage; all of the process's processor time, but for the last moment."""
        found: defaultdict[str, float] = defaultdict(float)
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        clocks = {clock.thread_id: clock for clock in self._clocks}
        for task in Path("/proc/self/task").iterdir():
            thread_id = int(task.name)
            try:
                total_ns = int((task / "schedstat").read_text().split()[0])
                name = names.get(thread_id) or (task / "comm").read_text()
            except (FileNotFoundError, ProcessLookupError):  # it ended since it was listed
                continue
            own = next((stage for part, stage in THREADS.items() if part in name), None)
            own = own or ("engine: session run" if thread_id not in names else "others")
            clock = clocks.get(thread_id)
            if clock is not None:
                for stage, spent_ns in list(clock.by_stage.items()):
                    inner_ns = clock.num_inside[stage] * self._inner_ns
                    outer_ns = clock.num_outside[stage] * self._outer_ns
                    found[own if stage == OUTSIDE else stage] += spent_ns - inner_ns - outer_ns
                    found[MEASURING] += inner_ns + outer_ns
                    total_ns -= spent_ns
            found[own] += total_ns
        return dict(found)

    def _clock(self) -> _Clock:
        clock: _Clock | None = getattr(self._local, "clock", None)
        if clock is None:
            clock = self._local.clock = _Clock()
            self._clocks.append(clock)
        return clock

    def _calibrate(self) -> None:
        """What two stamps cost, of the stage that they enclose and of the one around it."""
        empty = self.wrapped("inner", lambda: None)
        clock = self._clock()
        clock.enter("outer")
        for _ in range(CALIBRATION_CALLS):
            empty()
        clock.leave()
        self._inner_ns = clock.by_stage["inner"] / CALIBRATION_CALLS
        self._outer_ns = clock.by_stage["outer"] / CALIBRATION_CALLS
        clock.by_stage.clear()
        clock.num_inside.clear()
        clock.num_outside.clear()


class _Stepping:
    """Awaits a coroutine: of its stage is what happens while it runs, not while it waits."""

    def __init__(self, clock: Callable[[], _Clock], stage: str, work: Any) -> None:  # noqa: ANN401
        self._clock, self._stage, self._work = clock, stage, work

    def __await__(self) -> Generator[object, object, object]:
        clock, stage, work = self._clock(), self._stage, self._work
        step, given = work.send, None
        while True:
            clock.enter(stage)
            try:
                waiting = step(given)
            except StopIteration as stop:
                return stop.value
            finally:
                clock.leave()
            try:
                step, given = work.send, (yield waiting)
            except BaseException as error:
                step, given = work.throw, error


def install(stages: Stages) -> None:
    """Wrap what stands for a stage, and answer the signal."""
    for stage, functions in STAGES.items():
        for module, owner, name in functions:
            holder: Any = importlib.import_module(module)
            holder = getattr(holder, owner) if owner else holder
            if name == "_collate":  # given to each engine
                _wrap_collate(stages, stage, holder)
            else:
                setattr(holder, name, stages.wrapped(stage, getattr(holder, name)))

    def tell(*_: object) -> None:
        os.write(sys.stdout.fileno(), json.dumps(stages.report()).encode() + b"\n")

    signal.signal(signal.SIGUSR1, tell)


def _wrap_collate(stages: Stages, stage: str, engine: Any) -> None:  # noqa: ANN401 - a class
    build = engine.__init__

    def init(self: Any, *args: object, **named: object) -> None:  # noqa: ANN401
        build(self, *args, **named)
        self._collate = stages.wrapped(stage, self._collate)

    engine.__init__ = init


if __name__ == "__main__":
    from service.cli import main

    install(Stages())
    sys.argv[:1] = ["attendant", "serve"]
    main()
