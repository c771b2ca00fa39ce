"""A served model: from a client's inputs to its outputs, through the engine.

All kinds share one door, `infer`: a `TensorModel` is any ONNX graph, and a `TextModel`
takes texts, which it tokenizes before and interprets after; generation/model.py has the
third. Knows nothing of protocols, files and sessions. All methods run on the event loop.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, TypeVar

import numpy as np

from service.batching import Size
from service.call import current_call
from service.engine import BatchEngine
from service.errors import (
    AttendantError,
    DeadlineExceeded,
    DeviceFailed,
    ModelFailed,
    Overloaded,
    TimedOut,
    TooLate,
    Unavailable,
    WaitTooLong,
)
from service.interface import ModelInterface
from service.manifest import Manifest
from service.metrics import Metrics, ModelMetrics
from service.occupancy import Occupancy
from service.request import Arrays, Item, Request, Timings
from service.reshape import reshaped
from service.response_cache import LoadCache, ResponseCache
from service.settings import Settings
from service.signature import Signature
from service.statistics import FailureReason, Refusal, Statistics
from service.task import Parameters, TextReply, TextTask, decode
from service.tasks import text_task
from service.tokenizer import EncodedText, Text, TextTokenizer, TokenPieces
from service.tokenizing import Tokenizing

T = TypeVar("T")
SIZE_GAIN = 0.05  # of a request's tokens per character, towards what is expected of the next
CAUTION = 0.9  # of tokens expected: a request refused before tokenizing would be refused after it
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
    metrics: Metrics
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

    def __init__(self, host: Host, interface: ModelInterface, engine: Engine) -> None:
        self.interface = interface
        self.name = interface.name
        self.version = interface.version
        self.signature = interface.signature
        self.labels = interface.labels
        self.users = Occupancy()  # calls that it must answer before it is closed
        self._engine = engine
        self._metrics = host.metrics.for_model(interface.name, interface.version)
        self._metrics.watch(lambda: engine.num_waiting, lambda: engine.num_running)

    async def infer(self, request: InferRequest) -> InferReply:
        """Answer one call, or raise an `AttendantError`."""
        raise NotImplementedError

    @property
    def running_since_s(self) -> float | None:
        """When the oldest run or step under way began; None while there is none."""
        return self._engine.running_since_s

    @property
    def has_lost_device(self) -> bool:
        """Whether the model broke with its device: no model of this process will run on it."""
        return isinstance(self._engine.failure, DeviceFailed)

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

    def _count_success(self, num_rows: int, timings: Timings, request_id: str) -> None:
        self._metrics.request_succeeded(num_rows, timings)
        self._trace(timings, request_id)

    def _trace(self, timings: Timings, request_id: str) -> None:
        tracer = self._metrics.tracer
        if tracer.is_on:
            tracer.answered(self.version, request_id, timings)

    def counted_failures(self, received_s: float) -> "CountedFailures":
        """Count what a block raises as a request that failed."""
        return CountedFailures(self._metrics, received_s)


class CountedFailures:
    """Of one request; written out, as a generator's block takes three times as long."""

    __slots__ = ("_metrics", "_received_s")

    def __init__(self, metrics: ModelMetrics, received_s: float) -> None:
        self._metrics = metrics
        self._received_s = received_s

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError | GeneratorExit | AttendantError):
            duration_s = time.monotonic() - self._received_s
            self._metrics.request_failed(_failure_reason(error), duration_s, _refusal(error))


class BatchedModel(ServedModel):
    """A model whose requests are batches' items. Subclasses implement `_compute_reply`.

    With a cache, repeated requests are answered from it without waiting. Two
    alike at one time may both be computed.
    """

    def __init__(self, host: Host, interface: ModelInterface, engine: BatchEngine) -> None:
        super().__init__(host, interface, engine)
        self._batches = engine
        self._cache = host.cache_for(interface)
        self._has_rows = interface.has_rows
        self._output_names = [spec.name for spec in self.signature.outputs]

    async def infer(self, request: InferRequest) -> InferReply:
        if self._cache is None:
            return await self._compute_reply(request)
        began_s = time.monotonic()
        parameters = {**request.parameters, "truncate": request.can_truncate}
        key = self._cache.key_of(request.inputs, parameters)
        outputs = self._cache.get(key) if key else None
        now_s = time.monotonic()
        lookup_s = now_s - began_s
        if outputs is not None:
            timings = Timings.without_batch(request.caller.received_s, now_s)
            self._metrics.answered_from_cache(timings, lookup_s)
            if (call := current_call.get()) is not None:
                call.is_cached, call.version = True, str(self.version)
            self._trace(timings, request.caller.request_id)
            return InferReply(outputs, timings)
        reply = await self._compute_reply(request)
        computed_s = time.monotonic()
        if key:
            self._cache.put(key, reply.outputs)
        self._metrics.missed_cache(lookup_s + time.monotonic() - computed_s)
        return reply

    async def _compute_reply(self, request: InferRequest) -> InferReply:
        raise NotImplementedError

    async def _run(
        self, request: Request, request_id: str, read: Callable[[list[list[np.ndarray]]], T]
    ) -> T:
        """Run and count one request; `read` makes of its items' outputs what is answered.

        Whoever calls this counts failures.
        """
        call = current_call.get()
        if call is not None:
            request.call = call
            call.timings, call.version = request.timings, str(self.version)
        num_rows = request.num_rows
        answer = read(await self._batches.run(request))
        self._count_success(num_rows, request.timings, request_id)
        return answer


class TensorModel(BatchedModel):
    """Any graph: the inputs of one call are concatenated with others of equal shape."""

    async def _compute_reply(self, request: InferRequest) -> InferReply:
        running = request.caller.new_request()
        with self.counted_failures(request.caller.received_s):
            inputs = to_graph(request.inputs, self.signature, self._has_rows)
            if not request.num_rows:
                return self._empty_reply(request)
            shapes = tuple(
                [  # None: an optional input that is left to the graph
                    inputs[spec.name].shape[1:] if spec.name in inputs else None
                    for spec in self.signature.inputs
                ]
            )
            item = Item(running, inputs, request.num_rows, 1, shapes)
            running.items = (item,)
            outputs = await self._run(running, request.caller.request_id, self._outputs_of)
        return InferReply(outputs, running.timings)

    def _outputs_of(self, results: list[list[np.ndarray]]) -> dict[str, np.ndarray]:
        (outputs,) = results
        named = dict(zip(self._output_names, outputs, strict=True))
        return from_graph(named, self.signature, self._has_rows)

    def _empty_reply(self, request: InferRequest) -> InferReply:
        """The answer to no rows, without a run; dimensions that only a run could tell are 0."""
        outputs = {
            spec.name: np.empty((0, *(max(0, dim) for dim in spec.dims)), spec.datatype.dtype)
            for spec in self.signature.outputs
        }
        now_s = time.monotonic()
        timings = Timings.without_batch(request.caller.received_s, now_s)
        self._count_success(0, timings, request.caller.request_id)
        return InferReply(outputs, timings)


class TextModel(BatchedModel):
    """A model that reads texts, for the task that its manifest names."""

    def __init__(
        self, host: Host, interface: ModelInterface, engine: BatchEngine, tokenizer: TextTokenizer
    ) -> None:
        assert interface.manifest is not None, "a text model has one"
        super().__init__(host, interface, engine)
        self.manifest = interface.manifest
        self.task = text_task(interface.manifest)
        self.tokenizer = tokenizer
        self._executor = host.executor
        self._tokenizing = Tokenizing(host.executor)
        self._tokens_per_character = 0.0  # of texts so far; 0: the first one is admitted unseen

    async def _compute_reply(self, request: InferRequest) -> InferReply:
        with self.counted_failures(request.caller.received_s):
            read = self.task.tensors(self, request.parameters)
            texts = self.task.texts_of(request.inputs)
        reply = await self.compute(texts, request.caller, request.can_truncate)
        outputs = await self.interpreted(reply, lambda: read(texts, reply))
        return InferReply(outputs, reply.timings)

    async def compute(
        self, texts: Sequence[Text], caller: Caller, can_truncate: bool = False
    ) -> TextReply:
        """Tokenize texts and run them, each as an item of its own."""
        with self.counted_failures(caller.received_s):
            size = self._size_of(texts)
            # Before any work, so that refusing is cheap.
            self._batches.check_room(caller.priority, caller.deadline_s, size)
            rows = await self._encode(texts, can_truncate)
            self._learn_size([row.num_tokens for row in rows], texts)
            if not rows:  # an empty batch is answered without running
                now_s = time.monotonic()
                timings = Timings.without_batch(caller.received_s, now_s)
                self._count_success(0, timings, caller.request_id)
                shape = 0, *(max(0, dim) for dim in self.task.dims(self.manifest))
                return TextReply(np.empty(shape, np.float32), rows, timings, [])
            request = caller.new_request()
            request.items = text_items(request, rows, self.manifest)
            counts = [
                item.num_rows if item.num_outputs is None else item.num_outputs
                for item in request.items
            ]
            values = await self._run(request, caller.request_id, first_outputs)
        return TextReply(values, rows, request.timings, counts)

    async def interpreted(self, reply: TextReply, read: Callable[[], T]) -> T:
        """What `read` makes of a reply: on another thread where that has many rows to read."""
        if len(reply.values) <= self.task.inline_rows:
            return read()
        return await asyncio.get_running_loop().run_in_executor(self._executor, read)

    async def pieces(self, texts: Sequence[str], read: Callable[[list[TokenPieces]], T]) -> T:
        """What `read` makes, where they are found, of the tokens of texts of any length."""
        num_characters = self.tokenizer.check_sizes(texts)
        return await self._tokenizing.run(
            lambda: read([self.tokenizer.pieces(text) for text in texts]), num_characters
        )

    def _size_of(self, texts: Sequence[Text]) -> Size:
        """The expected tokens of texts, from the ratio of earlier ones."""
        num_characters = self.tokenizer.check_sizes(texts)
        return Size(len(texts), int(CAUTION * self._tokens_per_character * num_characters))

    def _learn_size(self, num_tokens: Sequence[int], texts: Sequence[Text]) -> None:
        share = sum(num_tokens) / max(1, self.tokenizer.check_sizes(texts))
        self._tokens_per_character += SIZE_GAIN * (share - self._tokens_per_character)

    async def _encode(self, texts: Sequence[Text], can_truncate: bool) -> list[EncodedText]:
        num_characters = self.tokenizer.check_sizes(texts)
        rows = await self._tokenizing.run(
            lambda: self.tokenizer.encode(texts, can_truncate), num_characters
        )
        self.task.check(self, texts, rows)
        return rows


def text_items(
    request: Request, rows: Sequence[EncodedText], manifest: Manifest
) -> tuple[Item, ...]:
    """One item per text."""
    task = text_task(manifest)
    return tuple(
        Item(
            request,
            _inputs_of(row),
            num_tokens=row.num_tokens,
            num_outputs=_num_outputs(row, task, manifest) if task.rows != "text" else None,
        )
        for row in rows
    )


def _inputs_of(row: EncodedText) -> Arrays:
    inputs = {"input_ids": row.input_ids, "token_type_ids": row.token_type_ids}
    return inputs if row.target is None else {**inputs, "target_ids": row.target.input_ids}


def _num_outputs(row: EncodedText, task: TextTask, manifest: Manifest) -> int:
    if task.rows == "token":
        return row.num_tokens
    return int((row.input_ids == manifest.mask_token_id).sum())


def first_outputs(results: list[list[np.ndarray]]) -> np.ndarray:
    """One row per text, float32."""
    rows = [outputs[0] for outputs in results]
    values: np.ndarray = np.concatenate(rows) if len(rows) > 1 else rows[0]
    return values.astype(np.float32, copy=False)


def to_graph(inputs: Arrays, signature: Signature, has_rows: bool) -> dict[str, np.ndarray]:
    """A client's checked arrays as the session takes them."""
    specs = {spec.name: spec for spec in signature.inputs}
    return {
        name: _to_session_array(
            array
            if (shape := specs[name].reshape) is None
            else reshaped(array, specs[name].dims, shape, has_rows)
        )
        for name, array in inputs.items()
    }


def from_graph(outputs: Arrays, signature: Signature, has_rows: bool) -> dict[str, np.ndarray]:
    """A session's arrays as clients see them, or `ModelFailed` where one cannot be that."""
    found = dict(outputs)
    for spec in signature.outputs:
        if spec.reshape is not None:
            try:
                found[spec.name] = reshaped(found[spec.name], spec.reshape, spec.dims, has_rows)
            except ValueError as error:
                raise ModelFailed(f"output '{spec.name}' of the graph {error}") from error
    return found


def _to_session_array(array: np.ndarray) -> np.ndarray:
    """ONNX Runtime's Python API takes strings as `str` objects only."""
    if array.dtype != object:
        return array
    return np.array(decode(array), object).reshape(array.shape)


def _failure_reason(error: BaseException) -> FailureReason:
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "CANCELED"
    if isinstance(error, Overloaded | DeadlineExceeded | TimedOut | Unavailable):
        return "REJECTED"
    return "BACKEND" if isinstance(error, ModelFailed) else "OTHER"


def _refusal(error: BaseException) -> Refusal | None:
    """Why a request was not computed, where that is for want of time or room."""
    if isinstance(error, WaitTooLong):
        return error.bound
    if isinstance(error, TooLate):
        return "late"
    return "queue" if isinstance(error, Overloaded) else None
