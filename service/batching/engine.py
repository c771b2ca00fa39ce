"""Run one model's batches on their own threads, and answer on the event loop.

Each thread loops: wait until a batch is due, take it, run it, answer. The thread is
free before the batch is formed, so while one batch runs the next fills by itself and
an idle engine adds no delay. Threads may share one session.

All mutable state (the queue, the set of running requests, the runs, the count of stops, the
closing flag; of a request its results, timings and `is_done`) is guarded by the one lock inside
`_changed`. Decisions are made under it; sessions run and answers are posted outside
it. Answers cross to the event loop once per batch.

A timer of the event loop ends a request that waits too long, independent of the threads; its
items in a run are computed, and their outputs dropped. A run whose requests have all ended is
stopped. So are runs of background requests when another request comes: their items wait again, in
front of their like, until no other request waits or runs.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

import numpy as np

from service.batching.limits import BatchLimits
from service.batching.queue import NOTHING, BatchQueue, Size
from service.batching.request import Item, Request
from service.contract.queue_policies import BACKGROUND
from service.contract.tensors import Arrays
from service.errors import (
    AttendantError,
    DeadlineExceeded,
    DeviceFailed,
    ModelFailed,
    OutOfMemory,
    TimedOut,
    Unavailable,
    forget_frames,
)
from service.records import Observer, RanBatch
from service.runtime.loop_bridge import Crossing
from service.runtime.pace import PacedRun
from service.runtime.session import RunStop, Session

Outputs = list[np.ndarray]
Collate = Callable[[Sequence[Item]], Arrays]
logger = logging.getLogger(__name__)
# Background runs that are stopped one after the other; the next one runs to its end, so that
# background requests get a fifth of what is left to them at least.
MAX_STOPS = 4
MAX_WAIT_S = 3_600.0  # then the engine looks again: threads cannot wait as long as clients may ask
LATE = {DeadlineExceeded: "Deadline Exceeded", TimedOut: "Request timeout expired"}
STOP_GRACE_S = 0.5  # for stopped runs to end, beyond the time that closing has


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """A session run under way."""

    items: Sequence[Item]
    started_s: float
    is_background: bool = False
    stopping: RunStop = field(default_factory=RunStop)

    @property
    def has_listeners(self) -> bool:
        return not all(item.request.is_done for item in self.items)


class BatchEngine:
    """Batches requests over sessions; every admitted request ends exactly once."""

    def __init__(
        self,
        name: str,
        sessions: Sequence[Session],
        output_names: Sequence[str],
        collate: Collate,
        limits: BatchLimits,
        observers: Sequence[Observer],
        on_broken: Callable[[], None] = lambda: None,
        *,
        has_rows: bool = True,  # False: no batch axis, so one item per batch and any output
    ) -> None:
        self._output_names = tuple(output_names)
        self._collate = collate
        self._observers = observers
        self._crossing: Crossing[Request, asyncio.Future[None]] = Crossing(on_broken)
        self._has_rows = has_rows
        self.limits = limits
        self._queue = BatchQueue(limits, len(sessions))
        self._running: set[Request] = set()
        self._runs: dict[_Run, None] = {}
        self._num_stops = 0  # how often background runs were, since one was completed
        self._is_closing = False
        self._changed = threading.Condition()
        for index, session in enumerate(sessions):
            self._crossing.start(f"{name}-{index}", self._work, session)

    @property
    def failure(self) -> AttendantError | None:
        """The error after which the model serves no more."""
        return self._crossing.failure

    async def run(self, request: Request) -> list[Outputs]:
        """Compute a request: the outputs of each item, in order.

        Raises what `BatchQueue.put` raises, `DeadlineExceeded` when the deadline passes,
        `TimedOut` when it has waited too long, `ModelFailed`, or `Unavailable` when the engine
        closes. A cancelled caller takes its waiting items out of the queue. Afterwards the request
        has no items any more.
        """
        try:
            return await self._outputs_of(request)
        finally:
            if not request.is_done:
                self._abandon(request)
            request.forget()

    async def _outputs_of(self, request: Request) -> list[Outputs]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._is_closing:
                raise Unavailable(
                    "Server is stopping, scheduler for model has stopped accepting new "
                    "inference requests"
                )
            request.timings.queued_s = time.monotonic()
            times_out_s = self._queue.put(request)
            self._crossing.enter(request, future)
            if request.priority != BACKGROUND:
                self._make_way()
            self._changed.notify()
        self._crossing.at(request.deadline_s, request, self._end_late, request, DeadlineExceeded)
        self._crossing.at(times_out_s, request, self._end_late, request, TimedOut)
        try:
            await future
            self._queue.answered(request, time.monotonic())
        except DeadlineExceeded:
            self._queue.answered(request, inf)
            raise
        finally:
            self._crossing.leave(request)
            del future  # it keeps its error, and that keeps this frame
        return [request.results[item] for item in request.items]

    def _make_way(self) -> None:
        """Stop background runs, which share the processors with what comes. Under the lock."""
        if self._num_stops >= MAX_STOPS:
            return
        running = [run for run in self._runs if run.is_background and not run.stopping.is_stopped]
        self._num_stops += bool(running)
        for run in running:
            run.stopping.stop()

    @property
    def _must_wait(self) -> bool:
        """Whether what waits is for the background, and another request runs. Under the lock."""
        is_taken = any(not run.is_background for run in self._runs)
        return is_taken and len(self._queue) > 0 and not self._queue.has_others()

    @property
    def num_waiting(self) -> int:
        return self._queue.num_requests

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def running_since_s(self) -> float | None:
        """When the oldest run under way began; None while there is none."""
        with self._changed:
            return min((run.started_s for run in self._runs), default=None)

    def check_room(
        self, priority: int = 0, deadline_s: float | None = None, size: Size = NOTHING
    ) -> None:
        """Raise `Overloaded` if a request of about this size would be refused.

        Cheap, so that it is asked before any work is done for the request.
        """
        with self._changed:
            self._queue.check_room(time.monotonic(), priority, deadline_s, size)

    def stop(self) -> None:
        """Refuse what waits and what comes, and let running batches end."""
        with self._changed:
            self._is_closing = True
            waiting = self._queue.take_all()
            for request in waiting:
                self._finish(request)
            self._changed.notify_all()
        self._post(dict.fromkeys(waiting, Unavailable("Server is stopping")))

    def close(self, timeout_s: float) -> None:
        """Stop, and wait so long for running batches to end; blocks meanwhile.

        Then they are stopped too. A session that does not hear keeps its thread, which does not
        keep the process.
        """
        self.stop()
        if self._crossing.join(timeout_s):
            return
        with self._changed:
            running = list(self._running)
            for request in running:
                self._finish(request)
        self._post(dict.fromkeys(running, Unavailable("Server is stopping")))
        self._crossing.join(STOP_GRACE_S)

    def _abandon(self, request: Request) -> None:
        with self._changed:
            self._finish(request)

    def _end_late(self, request: Request, kind: type[AttendantError]) -> None:
        """Called by the event loop when the error is due; a timeout is for those that wait."""
        with self._changed:
            has_begun = request.timings.started_s > 0
            if request.is_done or (has_begun and kind is TimedOut):
                return
            self._finish(request)
        self._resolve({request: kind(LATE[kind])})

    def _work(self, session: Session) -> None:
        try:
            is_open, run = True, None
            while is_open:
                is_open, run = self._run_next(session, run)
        except Exception:
            logger.exception("an engine thread failed: its model serves no more")
            self._break(ModelFailed("the engine failed, see the server's log"))

    def _break(self, error: AttendantError) -> None:
        """End what runs with this error, refuse all else, and say so."""
        forget_frames(error)
        with self._changed:
            was_closing, self._is_closing = self._is_closing, True
            self._crossing.failure = error
            running = list(self._running)
            for request in running:
                self._finish(request)
        self._post(dict.fromkeys(running, error))
        self.stop()
        if not was_closing:
            self._crossing.report_broken()

    def _run_next(self, session: Session, last: PacedRun | None) -> tuple[bool, PacedRun | None]:
        """Wait for a batch and run it, and keep nothing of it; False once the engine closes."""
        taken = self._next_batch(last)
        if taken is None:
            return False, None
        batch, run = taken
        if run is not None:
            run.is_sound = self._run_batch(session, batch)
        return True, run

    def _next_batch(self, last: PacedRun | None) -> tuple[list[Item], PacedRun | None] | None:
        """Wait for a batch; None once the engine closes. `last` is this thread's run before it."""
        with self._changed:
            if last is not None:
                self._queue.end(last, time.monotonic())
            while not self._is_closing:
                due_s, now_s = self._queue.due_s(), time.monotonic()
                if self._must_wait:
                    self._changed.wait(MAX_WAIT_S)
                    continue
                if due_s is not None and due_s <= now_s:
                    break
                self._changed.wait(None if due_s is None else min(due_s - now_s, MAX_WAIT_S))
            else:
                return None
            batch, late = self._queue.take(now_s)
            run = self._queue.begin(batch, now_s) if batch else None
            for request in late:
                self._finish(request)
            for item in batch:
                item.request.timings.started_s = item.request.timings.started_s or now_s
                self._running.add(item.request)
            if len(self._queue):  # more than this batch took: wake the next idle thread
                self._changed.notify()
        self._post(late)
        return batch, run

    def _run_batch(self, session: Session, items: list[Item]) -> bool:
        """Run and answer a batch; after a failure each item alone, so only culprits fail.

        Where memory is short it is halved first. Returns whether the batch ran as it was.
        """
        run = self._begin(items)
        if run is None:
            return False
        try:
            ran, outputs = self._compute(session, run)
        except DeviceFailed as error:  # logged where the model is known
            self._break(error)
            return False
        except AttendantError as error:
            if self._goes_on_later(run):
                return False
            if len(run.items) == 1:
                self._fail(run.items[0].request, error)
                return False
            part = len(run.items) // 2 if isinstance(error, OutOfMemory) else 1
            for first in range(0, len(run.items), part):
                self._run_batch(session, list(run.items[first : first + part]))
            return False
        if run.is_background:
            self._num_stops = 0
        for observer in self._observers:  # first: an answered client may read how many ran
            observer.batch_ran(ran)
        self._answer(run.items, ran, outputs)
        return len(run.items) == len(items)

    def _goes_on_later(self, run: _Run) -> bool:
        """Whether a run was stopped for another request; what still waits of it is put back."""
        if not (run.is_background and run.stopping.is_stopped):
            return False
        refused: set[Request] = set()
        with self._changed:
            items = [item for item in run.items if not item.request.is_done]
            if items and self._is_closing:
                refused = {item.request for item in items}
                for request in refused:
                    self._finish(request)
            elif items:
                self._queue.put_back(items)
        self._post(dict.fromkeys(refused, Unavailable("Server is stopping")))
        return True

    def _begin(self, items: list[Item]) -> _Run | None:
        """A run of the requests that still wait for an answer, if there are any."""
        with self._changed:
            items = [item for item in items if not item.request.is_done]
            if not items:
                return None
            is_background = self._queue.are_background(items)
            if is_background and self._queue.has_others() and not self._is_closing:
                self._queue.put_back(items)  # another request came since these were taken
                return None
            run = _Run(items, time.monotonic(), is_background)
            self._runs[run] = None
            return run

    def _compute(self, session: Session, run: _Run) -> tuple[RanBatch, list[Outputs]]:
        """Run one batch; returns each item's outputs. Whatever a model raises is `ModelFailed`."""
        items, started_s = run.items, run.started_s
        try:
            inputs = self._collate(items)
            collated_s = time.monotonic()
            outputs = session.run(inputs, self._output_names, run.stopping)
            computed_s = time.monotonic()
            split = self._split(items, outputs)
        except AttendantError:
            raise
        except Exception as error:
            raise ModelFailed(f"{type(error).__name__}: {error}") from error
        finally:
            with self._changed:
                del self._runs[run]
        split_s = time.monotonic() - computed_s
        collate_s, run_s = collated_s - started_s, computed_s - collated_s
        return RanBatch(items, collate_s, run_s, split_s, started_s), split

    def _split(self, items: Sequence[Item], outputs: Outputs) -> list[Outputs]:
        """Give every item its own rows; without a batch axis, its one item the whole."""
        if not self._has_rows:
            assert len(items) == 1, "nothing to split by"
            return [outputs]
        by_output: list[Outputs] = []
        for name, output in zip(self._output_names, outputs, strict=True):
            counts = [item.output_rows.get(name, item.num_rows) for item in items]
            if output.shape[:1] != (sum(counts),):
                raise ModelFailed(
                    f"output '{name}' has shape {list(output.shape)} for a batch of "
                    f"{sum(counts)} rows"
                )
            ends = zip(counts, accumulate(counts), strict=True)
            by_output.append([output[end - count : end] for count, end in ends])
        return [list(of_item) for of_item in zip(*by_output, strict=True)]

    def _answer(self, items: Sequence[Item], ran: RanBatch, outputs: list[Outputs]) -> None:
        """Leave outputs and times with their requests; answer those that are complete."""
        complete: list[Request] = []
        with self._changed:
            for item, item_outputs in zip(items, outputs, strict=True):
                if not item.request.is_done:
                    item.request.results[item] = item_outputs
            for request in {item.request: None for item in items}:
                if request.is_done:
                    continue
                request.timings.add(ran)
                if len(request.results) == len(request.items):
                    self._finish(request)
                    complete.append(request)
        self._post(dict.fromkeys(complete))

    def _fail(self, request: Request, error: AttendantError) -> None:
        forget_frames(error)
        with self._changed:
            if request.is_done:
                return
            self._finish(request)
        self._post({request: error})

    def _finish(self, request: Request) -> None:
        """Whatever still waits or runs of it need not. Under the lock."""
        request.is_done = True
        request.timings.finished_s = time.monotonic()
        self._queue.drop(request)
        self._running.discard(request)
        for run in self._runs:
            if not run.has_listeners:
                run.stopping.stop()

    def _post(self, answers: Mapping[Request, AttendantError | None]) -> None:
        """Hand answers to the event loop, in one crossing; a closed loop has no listeners."""
        if answers:
            self._crossing.post(self._resolve, answers)

    def _resolve(self, answers: Mapping[Request, AttendantError | None]) -> None:
        for request, error in answers.items():
            future = self._crossing.clients.get(request)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
