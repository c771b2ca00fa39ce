"""`ModelStreamInfer`: several requests at a time on one stream, for any models.

Each request is a task that starts as soon as it is read and writes its own answers. As in Triton,
models that give one answer are answered in the order of their requests; generative ones answer
as text is generated, interleaved, matched by id. An error is an answer, and the stream
continues. Lives on the event loop.

Memory is bounded by the number of requests in flight, beyond which no more are read, and by one
response per task, because a task waits until its response is written. While a client reads slowly
its generations merge their new text (`generation/stream.py`), and no other client waits; a client
that does not read for too long loses its stream: writing raises `DeadlineExceeded`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from service.api.admission import SHUTTING_DOWN, Admission
from service.api.calls import INTERNAL_ERROR, Arrival, Calls, Ends, details, logged, note_end
from service.api.infer import EMPTY_FINAL, build_response, is_set, to_infer_request
from service.api.long_message import LongInferResponse
from service.api.regions import Transfer, shared_bytes
from service.errors import AttendantError, Unavailable
from service.repository.repository import ModelRepository
from service.serving.model import Caller, InferRequest, ServedModel

FINAL = "triton_final_response"
PATH = "/inference.GRPCInferenceService/ModelStreamInfer"
Response: TypeAlias = pb.ModelStreamInferResponse | LongInferResponse
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A client's side of a stream, as a front gives it."""

    read: Callable[[], Awaitable[Any]]  # the next request, or `end`
    end: object
    write: Callable[[Response], Awaitable[None]]  # raises `DeadlineExceeded` where it is not read
    arrival: Arrival
    ends_on_errors: bool  # the first error of a model ends the whole stream
    ends_on_refusals: bool = False  # so does a request that is refused before its model runs


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused, before its model runs."""

    error: AttendantError


class InferAnswers:
    """Answers one request of a stream, for any model; holds nothing of it afterwards."""

    def __init__(
        self, repository: ModelRepository, admission: Admission, transfer: Transfer
    ) -> None:
        self._repository = repository
        self._admission = admission
        self._transfer = transfer

    async def of(
        self, request: pb.ModelInferRequest, caller: Caller, ends: Ends
    ) -> AsyncGenerator[Response | Refusal | AttendantError, None]:
        """Responses to one request; last of all, its refusal or the error that the model raised."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._admission.admitted())
                model = self._repository.find(request.model_name, request.model_version)
                stack.enter_context(model.users)
                with model.counted_failures(caller.received_s):
                    infer_request = to_infer_request(request, model, self._transfer, caller)
                stack.enter_context(self._admission.taking(shared_bytes(request)))
            except AttendantError as error:
                note_end(ends[type(error)], logged(error))
                yield Refusal(error)
                return
            try:
                computing = _compute(model, request, infer_request, self._transfer)
                async with aclosing(computing) as responses:
                    async for response in responses:
                        yield response
            except AttendantError as error:
                note_end(ends[type(error)], logged(error))
                yield error
            except Exception:
                logger.exception("ModelStreamInfer failed")
                note_end(ends[Exception], INTERNAL_ERROR)
                yield _error(request, INTERNAL_ERROR)


class InferStream:
    """One call of `ModelStreamInfer`."""

    def __init__(
        self,
        repository: ModelRepository,
        admission: Admission,
        answers: InferAnswers,
        exchange: Exchange,
        calls: Calls,
    ) -> None:
        self._repository = repository
        self._admission = admission
        self._answers = answers
        self._exchange = exchange
        self._calls = calls
        self._places = asyncio.Semaphore(admission.max_stream_requests)
        self._writing = asyncio.Lock()  # first come, first written
        self._no_predecessor = asyncio.Event()
        self._no_predecessor.set()
        self._tail = self._no_predecessor  # set once that request is answered

    async def serve(self) -> None:
        """Answer all that is read, until the client closes its side or leaves.

        Raises `Unavailable` where the server drains before the client has closed its side.
        """
        try:
            async with asyncio.TaskGroup() as whole:
                closing = whole.create_task(self._admission.end_when_closed())
                await self._answer_all()
                closing.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from None

    async def _answer_all(self) -> None:
        """Read until the server drains; then answer the read requests, and end the stream."""
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(tasks))
            with self._admission.on_drain(reading.cancel):
                await asyncio.wait({reading})
        if reading.cancelled():
            raise Unavailable(SHUTTING_DOWN)

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        await self._places.acquire()
        # Not by `async for`, whose iterator keeps each request until the next one comes.
        while (request := await self._exchange.read()) is not self._exchange.end:
            before, done = self._turn(request)
            tasks.create_task(self._answer(request, time.monotonic(), before, done))
            del request
            await self._places.acquire()

    def _turn(self, request: pb.ModelInferRequest) -> tuple[asyncio.Event, asyncio.Event]:
        """The events that a request's answer waits for, and that its writing sets."""
        done = asyncio.Event()
        if self._is_decoupled(request):
            return self._no_predecessor, done
        before, self._tail = self._tail, done
        return before, done

    def _is_decoupled(self, request: pb.ModelInferRequest) -> bool:
        try:
            model = self._repository.find(request.model_name, request.model_version)
        except AttendantError:
            return False
        return model.is_decoupled

    async def _answer(
        self,
        request: pb.ModelInferRequest,
        received_s: float,
        before: asyncio.Event,
        done: asyncio.Event,
    ) -> None:
        try:
            # The front ends a stream at its deadline: no answer may race with that status.
            caller = Caller(received_s, deadline_s=None, request_id=request.id)
            arrival = self._exchange.arrival
            with self._calls.watch(PATH, request, arrival):
                answers = self._answers.of(request, caller, arrival.ends)
                async with aclosing(answers):
                    async for answer in answers:
                        await before.wait()
                        await self._send(request, answer)
        finally:
            done.set()
            self._places.release()

    async def _send(
        self, request: pb.ModelInferRequest, answer: Response | Refusal | AttendantError
    ) -> None:
        if isinstance(answer, Refusal):
            if self._exchange.ends_on_refusals:
                raise answer.error
            answer = _error(request, details(answer.error))
        elif isinstance(answer, AttendantError):
            if self._exchange.ends_on_errors:
                raise answer
            answer = _error(request, details(answer))
        async with self._writing:
            await self._exchange.write(answer)


def _first(error: BaseException) -> BaseException:
    """The error that ended a group of tasks, which may have been in a group of its own."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _compute(
    model: ServedModel,
    request: pb.ModelInferRequest,
    infer_request: InferRequest,
    transfer: Transfer,
) -> AsyncGenerator[Response, None]:
    has_empty_final = model.is_decoupled and is_set(request, EMPTY_FINAL)
    async with aclosing(model.infer_stream(infer_request)) as replies:
        async for reply in replies:
            is_final = reply.is_last and not has_empty_final
            yield _data(model, request, reply.outputs, transfer, is_final=is_final)
    if has_empty_final:
        yield _final(request, str(model.version))


def _data(
    model: ServedModel,
    request: pb.ModelInferRequest,
    outputs: dict[str, np.ndarray],
    transfer: Transfer,
    *,
    is_final: bool,
) -> Response:
    response = build_response(request, model, outputs, transfer)
    response.parameters[FINAL].bool_param = is_final
    if isinstance(response, LongInferResponse):
        return response.streamed()
    return pb.ModelStreamInferResponse(infer_response=response)


def _final(request: pb.ModelInferRequest, version: str) -> pb.ModelStreamInferResponse:
    """Without outputs: the request's last, or an error's frame."""
    response = pb.ModelInferResponse(
        id=request.id, model_name=request.model_name, model_version=version
    )
    response.parameters[FINAL].bool_param = True
    return pb.ModelStreamInferResponse(infer_response=response)


def _error(request: pb.ModelInferRequest, text: str) -> Response:
    response = _final(request, request.model_version)
    response.error_message = text
    return response
