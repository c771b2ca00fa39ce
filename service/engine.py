"""Run one model's batches on their own threads; the only place that crosses threads.

Each thread owns one session and loops: wait until a batch is due, take it, run it,
answer. The session is free before the batch is formed, so while one batch runs the
next fills by itself and an idle engine adds no delay.

All mutable state (the queue, the set of running requests, the closing flag) is
guarded by the one lock inside `_changed`. Decisions are made under it; sessions run
and answers are posted outside it. Answers cross to the event loop once per batch.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from service.batching import BatchLimits, BatchQueue
from service.errors import AttendantError, ModelFailed, QueueTimeout, Unavailable
from service.request import Arrays, Item, RanBatch, Request
from service.runtime import Session

Outputs = list[np.ndarray]
Collate = Callable[[Sequence[Item]], Arrays]
Answer = tuple[Request, AttendantError | None]


class EngineObserver(Protocol):
    """Who counts. Called on engine threads, outside the lock."""

    def batch_ran(self, batch: RanBatch) -> None: ...


class BatchEngine:
    """Batches requests over sessions; every admitted request ends exactly once."""

    def __init__(
        self,
        name: str,
        sessions: Sequence[Session],
        output_names: Sequence[str],
        collate: Collate,
        limits: BatchLimits,
        observer: EngineObserver,
        *,
        has_rows: bool = True,  # False: no batch axis, so one item per batch and any output
    ) -> None:
        self._output_names = tuple(output_names)
        self._collate = collate
        self._observer = observer
        self._has_rows = has_rows
        self._queue = BatchQueue(limits)
        self._running: set[Request] = set()
        self._is_closing = False
        self._changed = threading.Condition()
        self._futures: dict[Request, asyncio.Future[None]] = {}  # event loop only
        self._loop = asyncio.get_running_loop()
        self._threads = [
            threading.Thread(
                target=self._work, args=(session,), name=f"{name}-{index}", daemon=True
            )
            for index, session in enumerate(sessions)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, request: Request) -> list[Outputs]:
        """Compute a request: the outputs of each item, in order.

        Raises what `BatchQueue.put` raises, `QueueTimeout` when the deadline passes in the
        queue, `ModelFailed`, or `Unavailable` when the engine closes. A cancelled caller
        takes its waiting items out of the queue.
        """
        future = self._loop.create_future()
        with self._changed:
            if self._is_closing:
                raise Unavailable(
                    "Server is stopping, scheduler for model has stopped accepting new "
                    "inference requests"
                )
            request.timings.queued_s = time.monotonic()
            self._queue.put(request)
            self._futures[request] = future
            self._changed.notify()
        try:
            await future
        finally:
            del self._futures[request]
            if not request.is_done:
                self._abandon(request)
        return [request.results[item] for item in request.items]

    @property
    def num_waiting(self) -> int:
        return self._queue.num_requests

    @property
    def num_running(self) -> int:
        return len(self._running)

    def close(self, timeout_s: float) -> None:
        """Refuse what waits, and give running batches so long to end; blocks meanwhile.

        A session that never returns keeps its thread, which does not keep the process.
        """
        with self._changed:
            self._is_closing = True
            waiting = self._queue.take_all()
            self._changed.notify_all()
        error = Unavailable("Server is stopping")
        self._post([(request, error) for request in waiting])
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _abandon(self, request: Request) -> None:
        with self._changed:
            request.is_done = True
            self._queue.drop(request)
            self._running.discard(request)

    def _work(self, session: Session) -> None:
        while (batch := self._next_batch()) is not None:
            if batch:
                self._run_batch(session, batch)

    def _run_batch(self, session: Session, batch: list[Item]) -> None:
        """Run and answer a batch; after a failure each item alone, so only culprits fail."""
        error = self._compute(session, batch)
        if error is None or len(batch) == 1:
            self._answer(batch, error)
            return
        for item in batch:
            if not item.request.is_done:  # by another of its items, or by its client
                self._answer([item], self._compute(session, [item]))

    def _next_batch(self) -> list[Item] | None:
        """Wait for a batch; None once the engine closes."""
        with self._changed:
            while not self._is_closing:
                due_s, now_s = self._queue.due_s(), time.monotonic()
                if due_s is not None and due_s <= now_s:
                    break
                self._changed.wait(None if due_s is None else due_s - now_s)
            else:
                return None
            batch, expired = self._queue.take(now_s)
            self._running.update(item.request for item in batch)
            self._running.difference_update(expired)
        for item in batch:
            item.request.timings.started_s = item.request.timings.started_s or now_s
        timeout = QueueTimeout("Request timeout expired")
        self._post([(request, timeout) for request in expired])
        return batch

    def _compute(self, session: Session, items: list[Item]) -> AttendantError | None:
        """Run one batch and leave each item's outputs with its request."""
        started_s = time.monotonic()
        try:
            inputs = self._collate(items)
            collated_s = time.monotonic()
            outputs = session.run(inputs, self._output_names)
            computed_s = time.monotonic()
            self._split(items, outputs)
        except AttendantError as error:
            return error
        except Exception as error:
            return ModelFailed(f"{type(error).__name__}: {error}")
        ran = RanBatch(
            items, collated_s - started_s, computed_s - collated_s, time.monotonic() - computed_s
        )
        for timings in {id(item.request): item.request.timings for item in items}.values():
            timings.collate_s += ran.collate_s
            timings.run_s += ran.run_s
            timings.split_s += ran.split_s
        self._observer.batch_ran(ran)
        return None

    def _split(self, items: list[Item], outputs: Outputs) -> None:
        """Give every item its own rows; without a batch axis, its one item the whole."""
        if not self._has_rows:
            (item,) = items
            item.request.results[item] = outputs
            return
        num_rows = sum(item.num_rows for item in items)
        for name, output in zip(self._output_names, outputs, strict=True):
            if output.shape[:1] != (num_rows,):
                raise ModelFailed(
                    f"output '{name}' has shape {list(output.shape)} for a batch of {num_rows} rows"
                )
        start = 0
        for item in items:
            end = start + item.num_rows
            item.request.results[item] = [output[start:end] for output in outputs]
            start = end

    def _answer(self, items: list[Item], error: AttendantError | None) -> None:
        """Post each request of the batch that is complete, or failed by it."""
        answers: list[Answer] = []
        now_s = time.monotonic()
        with self._changed:
            for request in {item.request: None for item in items}:
                if request.is_done or not (error or len(request.results) == len(request.items)):
                    continue
                self._queue.drop(request)  # after a failure its other items need not run
                self._running.discard(request)
                request.timings.finished_s = now_s
                answers.append((request, error))
        self._post(answers)

    def _post(self, answers: list[Answer]) -> None:
        """Hand answers to the event loop, in one crossing."""
        for request, _ in answers:
            request.is_done = True
        if answers:
            self._loop.call_soon_threadsafe(self._resolve, answers)

    def _resolve(self, answers: list[Answer]) -> None:
        for request, error in answers:
            future = self._futures.get(request)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
