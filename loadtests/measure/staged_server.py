"""`attendant serve` with a clock in each stage of a request, which a measurement reads.

    python -m loadtests.measure.staged_server SOCKET serve --model-repository ...

A connection to SOCKET gets the processor time so far of every stage and thread as one JSON
object. The stages are functions of the server by their names: one that is renamed is an error here.

Every thread is in one stage at a time, and its clock runs for that one. A stage that another calls
takes its time from it. What a thread does outside all stages is what its clock shows beyond them.
Reading a thread's clock is a call of the system, whose cost is known and taken off.
"""

import functools
import importlib
import json
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

READING = "receiving: parsing the message"
CHECKS = "front: calls, admission, checks"
TOKENIZING = "tokenizing"
QUEUE = "queue, and its futures and timers"
CROSSING = "crossing back to the event loop"
INTERPRETING = "interpreting, and the answer's message"
WRITING = "serialising"
SENDING = "sending"
COUNTING = "metrics"
CHOOSING = "engine: waiting, choosing the batch"
COLLATING = "engine: collating"
RUN = "session run"
SPLITTING = "engine: splitting, answering"
LOOP = "gRPC, HTTP and asyncio on the event loop"
SESSION_THREADS = "session run: its other threads"
GRPC_THREADS = "gRPC's threads"
OTHER_THREADS = "other threads"
GRPC_NAMES = ("event_engine", "grpc", "lifeguard", "resolver", "default-")  # of its threads
CLOCKS = "the clocks themselves"
STAGES = (  # in the order of the path
    LOOP,
    GRPC_THREADS,
    READING,
    CHECKS,
    TOKENIZING,
    QUEUE,
    CHOOSING,
    COLLATING,
    RUN,
    SESSION_THREADS,
    SPLITTING,
    CROSSING,
    INTERPRETING,
    WRITING,
    SENDING,
    COUNTING,
    OTHER_THREADS,
)

# Each stage's functions, and coroutine functions: a module, and a name in it.
FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    READING: (
        "service.rpc.interceptor:read_unless_long",
        "service.api.inference:to_infer_request",
        "service.http.request:decode_json",
        "service.http.openai.embeddings:prompts_of",
    ),
    TOKENIZING: ("service.text.tokenizer:TextTokenizer.encode",),
    QUEUE: ("service.batching.engine:BatchEngine.check_room",),
    CROSSING: (
        "service.batching.engine:BatchEngine._resolve",
        "service.batching.engine:BatchEngine._post",
    ),
    WRITING: (
        "service.rpc.interceptor:write_holding",
        "service.api.inference:build_response",
        "service.http.openai.embeddings:written",
        "service.http.openai.embeddings:Reply.json",
    ),
    COUNTING: (
        "service.observe.metrics:ModelMetrics.batch_ran",
        "service.observe.metrics:ModelMetrics.request_ended",
    ),
    CHOOSING: ("service.batching.engine:BatchEngine._next_batch",),
    RUN: ("service.runtime.session:OnnxSession.run",),
    SPLITTING: ("service.batching.engine:BatchEngine._run_batch",),
}
COROUTINES: Mapping[str, tuple[str, ...]] = {
    CHECKS: ("service.http.front:Front._answer",),
    QUEUE: ("service.batching.engine:BatchEngine.run",),
    INTERPRETING: ("service.serving.text_model:TextModel.interpreted",),
    SENDING: ("service.http.request:Request.reply",),
}
# Functions that return one of a stage, or a coroutine function.
MAKERS: Mapping[str, str] = {
    COLLATING: "service.repository.opening:pad_rows",
    READING: "service.api.codec:reader",
}
COROUTINE_MAKERS: Mapping[str, str] = {CHECKS: "service.rpc.interceptor:keeping_nothing"}
OUTSIDE = ""
OUTSIDE = ""
TRIALS = 20_000


@dataclass(slots=True, eq=False)
class ThreadStages:
    """One thread's stages."""

    thread_id: int
    stage: str = OUTSIDE
    since_ns: int = 0
    spent_ns: Counter[str] = field(default_factory=Counter)
    num_switches: Counter[str] = field(default_factory=Counter)

    def switch(self, stage: str) -> str:
        """Go over to a stage; returns the one before."""
        now_ns, before = time.thread_time_ns(), self.stage
        self.spent_ns[before] += now_ns - self.since_ns
        self.num_switches[before] += 1
        self.num_switches[stage] += 1
        self.stage, self.since_ns = stage, now_ns
        return before


class StageClock:
    """The stages of all threads."""

    def __init__(self) -> None:
        self._own = threading.local()
        self.threads: list[ThreadStages] = []

    @property
    def here(self) -> ThreadStages:
        """Those of the calling thread."""
        try:
            return self._own.stages  # type: ignore[no-any-return]
        except AttributeError:
            stages = ThreadStages(threading.get_native_id(), since_ns=time.thread_time_ns())
            self._own.stages = stages
            self.threads.append(stages)
            return stages

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose time is a stage's."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            here = self.here
            before = here.switch(stage)
            try:
                return function(*args, **kwargs)
            finally:
                here.switch(before)

        return run

    def stepped(
        self, stage: str, function: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        """The same coroutine function; the time between its steps is not its own."""

        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            return await _Steps(self, stage, function(*args, **kwargs))

        return run

    def switch_ns(self) -> float:
        """The cost of going into a stage and out of it again, with the call."""

        def nothing() -> None:
            pass

        timed = StageClock().timed("nothing", nothing)
        taken_ns = []
        for function in (nothing, timed):
            started_ns = time.thread_time_ns()
            for _ in range(TRIALS):
                function()
            taken_ns.append(time.thread_time_ns() - started_ns)
        return (taken_ns[1] - taken_ns[0]) / TRIALS


class _Steps:
    """An awaited coroutine, each of whose steps is timed."""

    __slots__ = ("_clock", "_coroutine", "_stage")

    def __init__(self, clock: StageClock, stage: str, coroutine: Any) -> None:
        self._clock, self._stage, self._coroutine = clock, stage, coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> "_Steps":
        return self

    def __next__(self) -> Any:
        return self._step(self._coroutine.send, None)

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def _step(self, resume: Callable[..., Any], *args: Any) -> Any:
        here = self._clock.here
        before = here.switch(self._stage)
        try:
            return resume(*args)
        finally:
            here.switch(before)


def set_up(clock: StageClock) -> None:
    """Put the clock into the functions of the server, before any of them is used."""
    for stage, names in FUNCTIONS.items():
        for name in names:
            _replace(name, partial(clock.timed, stage))
    for stage, names in COROUTINES.items():
        for name in names:
            _replace(name, partial(clock.stepped, stage))
    for stage, name in MAKERS.items():
        _replace(name, partial(_made, partial(clock.timed, stage)))
    for stage, name in COROUTINE_MAKERS.items():
        _replace(name, partial(_made, partial(clock.stepped, stage)))


def _made(wrap: Callable[[Any], Any], make: Callable[..., Any]) -> Callable[..., Any]:
    """A maker of functions whose functions are wrapped."""
    return lambda *args: wrap(make(*args))


def _replace(name: str, change: Callable[[Any], Any]) -> None:
    module, _, path = name.partition(":")
    owner: Any = importlib.import_module(module)
    *owners, last = path.split(".")
    for each in owners:
        owner = getattr(owner, each)
    setattr(owner, last, change(getattr(owner, last)))


def snapshot(clock: StageClock, switch_ns: float) -> dict[str, float]:
    """Nanoseconds of the process's time so far by stage."""
    spent_ns: defaultdict[str, float] = defaultdict(float)
    probes_ns = 0.0
    staged = {each.thread_id: each for each in list(clock.threads)}
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    loop_id = threading.main_thread().native_id
    for folder in Path("/proc/self/task").iterdir():
        thread_id = int(folder.name)
        try:
            total_ns = float(time.clock_gettime_ns((~thread_id << 3) | 6))
            comm = (folder / "comm").read_text().strip()
        except OSError:  # it has ended
            continue
        own = staged.get(thread_id)
        rest = LOOP if thread_id == loop_id else _kind_of(names.get(thread_id), comm)
        if own is not None:
            for stage, stage_ns in list(own.spent_ns.items()):
                if stage != OUTSIDE:
                    cost_ns = own.num_switches[stage] * switch_ns / 4
                    spent_ns[stage] += stage_ns - cost_ns
                    probes_ns += cost_ns
                    total_ns -= stage_ns
            cost_ns = own.num_switches[OUTSIDE] * switch_ns / 4
            probes_ns, total_ns = probes_ns + cost_ns, total_ns - cost_ns
            rest = rest if thread_id == loop_id else CHOOSING
        spent_ns[rest] += total_ns
    return {**spent_ns, CLOCKS: probes_ns}


def _kind_of(name: str | None, comm: str) -> str:
    """Whose a thread is, by its name in Python, where it has one, and in the system."""
    if name is not None:
        return GRPC_THREADS if "_poll_wrapper" in name else OTHER_THREADS
    return GRPC_THREADS if comm.startswith(GRPC_NAMES) else SESSION_THREADS


def _tell(listening: socket.socket, clock: StageClock, switch_ns: float) -> None:
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.sendall(json.dumps(snapshot(clock, switch_ns)).encode())


def main() -> None:
    """Serve with clocks."""
    from commands.main import main as attendant

    path = sys.argv.pop(1)
    sys.argv[0] = "attendant"
    clock = StageClock()
    set_up(clock)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    telling = threading.Thread(
        target=_tell, args=(listening, clock, clock.switch_ns()), daemon=True
    )
    telling.start()
    attendant()


if __name__ == "__main__":
    main()
