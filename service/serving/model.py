"""One loaded version of a model: what a client may ask of it, and what all kinds have in common."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, TypeVar

import numpy as np

from service.batching.request import Request
from service.calls.models import ModelFacts
from service.contract.interface import ModelInterface
from service.contract.tensors import Arrays
from service.errors import AttendantError, DeviceFailed
from service.observe.observers import Observers
from service.observe.statistics import Statistics
from service.records import EndedRequest, Timings
from service.serving.facts import facts_of
from service.serving.occupancy import Occupancy
from service.serving.response_cache import LoadCache, ResponseCache
from service.serving.tasks.task import Parameters
from service.settings import Settings

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """A front's data of a request beside its content: its arrival and how long it may wait.

    Clocks are `time.monotonic()` seconds.
    """

    received_s: float
    deadline_s: float | None = None
    priority: int = 0  # 1 is the most urgent, 0 leaves it to the model
    timeout_s: float | None = None  # how long it may wait in the queue; None leaves it to the model
    request_id: str = ""  # the client's name for it

    def new_request(self) -> Request:
        """The request for a batch engine, still without items."""
        return Request(Timings(self.received_s), self.deadline_s, self.priority, self.timeout_s)


@dataclass(frozen=True, slots=True)
class InferRequest:
    """Checked inputs of one call: `num_rows` is the batch axis, 1 for models without one."""

    inputs: Arrays
    num_rows: int
    caller: Caller
    can_truncate: bool = False
    # Request parameters that the protocol leaves to models.
    parameters: Parameters = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InferReply:
    """Every output of the model by name, BYTES as arrays of objects."""

    outputs: dict[str, np.ndarray]
    timings: Timings
    is_last: bool = True  # False: another follows, for the same request


@dataclass(frozen=True, slots=True)
class Host:
    """The parts that the models of one server share."""

    settings: Settings
    observers: Observers
    executor: Executor  # for tokenizing long texts
    cache: ResponseCache = field(default_factory=ResponseCache)

    def cache_for(self, interface: ModelInterface) -> LoadCache | None:
        """A place for the answers of a model that is being loaded, if it wants one."""
        if not interface.is_cached:
            return None
        if not self.cache.max_bytes:
            logger.warning(
                "'%s' has a response_cache, but --response-cache-bytes is 0: nothing is kept",
                interface.name,
            )
            return None
        return self.cache.for_load()


class Engine(Protocol):
    """The engine of one model, with its own threads."""

    @property
    def num_waiting(self) -> int: ...

    @property
    def num_running(self) -> int: ...

    @property
    def running_since_s(self) -> float | None: ...

    @property
    def failure(self) -> AttendantError | None: ...

    def stop(self) -> None: ...

    def close(self, timeout_s: float) -> None: ...


class ServedModel:
    """One version of one model, ready to answer. Subclasses implement `infer`."""

    takes = "tensors"  # in place of which it takes no texts
    task_name = ""  # of its manifest, where the typed API asks for it by a task
    is_decoupled = False  # whether one request may have several replies

    def __init__(self, host: Host, interface: ModelInterface, engine: Engine) -> None:
        self.interface = interface
        self.name = interface.name
        self.version = interface.version
        self.signature = interface.signature
        self.labels = interface.labels
        self.users = Occupancy()  # calls that it must answer before it is closed
        self._engine = engine
        self._observers = host.observers.for_model(self.name, self.version)
        self._metrics = host.observers.metrics.for_model(self.name, self.version)
        self._metrics.watch(lambda: engine.num_waiting, lambda: engine.num_running)

    async def infer(self, request: InferRequest) -> InferReply:
        """Answer one call, or raise an `AttendantError`."""
        raise NotImplementedError

    async def infer_stream(self, request: InferRequest) -> AsyncGenerator[InferReply, None]:
        """The replies of one call: one, unless the model is decoupled."""
        yield await self.infer(request)

    def facts(self) -> ModelFacts:
        """Facts of the model, for lists of models."""
        return facts_of(self.interface)

    @property
    def running_since_s(self) -> float | None:
        """When the oldest run or step under way began; None while there is none."""
        return self._engine.running_since_s

    @property
    def device_failure(self) -> DeviceFailed | None:
        """The error of a device that no model of this process will run on any more."""
        failure = self._engine.failure
        return failure if isinstance(failure, DeviceFailed) else None

    def stop(self) -> None:
        """Answer what runs and refuse the rest, without waiting for it."""
        self._engine.stop()

    def close(self, timeout_s: float) -> None:
        """Stop the engine; blocks until its running batches end, or the time is over."""
        self._engine.close(timeout_s)

    def unwatch(self) -> None:
        """Let go of its gauges: nothing serves in its place."""
        self._metrics.unwatch()

    def statistics(self) -> AbstractContextManager[Statistics]:
        """The statistics of this version, also from before its last load."""
        return self._metrics.reading()

    def _report(self, request: EndedRequest) -> None:
        for observer in self._observers:
            observer.request_ended(request)

    def counted_failures(self, received_s: float) -> "CountedFailures":
        """Report what a block raises as a request that failed."""
        return CountedFailures(self._report, received_s)


class CountedFailures:
    """A context of one request; written out, because a generator's takes three times as long."""

    __slots__ = ("_received_s", "_report")

    def __init__(self, report: Callable[[EndedRequest], None], received_s: float) -> None:
        self._report = report
        self._received_s = received_s

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError | GeneratorExit | Exception):
            timings = Timings(self._received_s, finished_s=time.monotonic())
            self._report(EndedRequest(timings, error=error))
