"""Calls between the processes of one server, over sockets of a folder that no other user can open.

Each process has a port of its own for the others there, `INDEX.sock`. What changes a server is
done by the first process, one call after another, and then by all others; its numbers are those of
all. docs/how-to/cuda.md says what was verified on CUDA.
"""

import asyncio
import functools
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import Message

from service import errors
from service.api.admission import Admission, Stay, current_stay
from service.api.calls import details
from service.api.operations import Operation, Operations
from service.serving.model import Caller
from service.team.merging import add_statistics, merged_numbers, merged_page

IN_ALL = (
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
    "TraceSetting",
    "LogSettings",
)
STATISTICS = "ModelStatistics"
LEAD, APPLY, PAGE, NUMBERS = "/lead/", "/apply/", "/own/page", "/own/numbers"
NUMBERS_TIMEOUT_S = 5.0  # for another process to say what it counted
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# The errors of control; one of another kind comes as a `LoadError`.
KINDS: dict[str, type[errors.AttendantError]] = {
    kind.__name__: kind
    for kind in (
        errors.InvalidArgument,
        errors.NotFound,
        errors.AlreadyExists,
        errors.Unimplemented,
        errors.Unavailable,
        errors.ModelFailed,
        errors.OutOfMemory,
        errors.RegionFailed,
        errors.LoadError,
    )
}
Answer: TypeAlias = Callable[[bytes, Any], Awaitable[bytes]]


class Siblings:
    """The processes of one server, as the one of this index knows them."""

    def __init__(self, folder: Path, index: int, count: int) -> None:
        self._folder, self._index, self._count = folder, index, count
        self._own: dict[str, Operation] = {}
        self._turn = asyncio.Lock()
        self._channels: dict[int, grpc.aio.Channel] = {}
        self._server: grpc.aio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def as_one(self, operations: Operations, admission: Admission) -> Operations:
        """The operations, of which some act on all processes, or sum up what all have counted."""
        self._admission = admission
        self._own = {op.name: op for op in operations.values() if op.name in (*IN_ALL, STATISTICS)}
        calls = {name: functools.partial(self._in_all, self._own[name]) for name in IN_ALL}
        calls[STATISTICS] = functools.partial(self._of_all, self._own[STATISTICS])
        return {
            path: replace(op, call=calls[op.name]) if op.name in self._own else op
            for path, op in operations.items()
        }

    async def start(
        self, metrics_port: int, page: Callable[[], bytes], numbers: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Open this process's port for the others, and name that of its metrics and probes.

        Both functions are called on threads.
        """
        self._loop = asyncio.get_running_loop()

        async def own_page(_: bytes, __: object) -> bytes:
            return await asyncio.to_thread(page)

        async def own_numbers(_: bytes, __: object) -> bytes:
            return json.dumps(await asyncio.to_thread(numbers)).encode()

        answers: dict[str, Answer] = {PAGE: own_page, NUMBERS: own_numbers}
        for name, operation in self._own.items():
            answers[APPLY + name] = self._answer(operation, operation.call)
            if name != STATISTICS:
                lead = functools.partial(self._in_all, operation)
                answers[LEAD + name] = self._answer(operation, lead)
        self._server = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((_Handlers(answers),))
        self._server.add_insecure_port(self._address(self._index))
        await self._server.start()
        write_port(self._folder, self._index, metrics_port)

    async def stop(self) -> None:
        """Close the port and the connections."""
        for channel in self._channels.values():
            await channel.close()
        if self._server is not None:
            await self._server.stop(None)

    def page(self, own: bytes) -> bytes:
        """A page of metrics of all processes, for threads. Raises `Unavailable`."""
        return merged_page([own, *self._told(PAGE)])

    def numbers(self, own: dict[str, Any]) -> dict[str, Any]:
        """The live numbers of all processes, for threads. Raises `Unavailable`."""
        return merged_numbers([own, *map(json.loads, self._told(NUMBERS))])

    def _told(self, method: str) -> Sequence[bytes]:
        assert self._loop is not None, "`start` comes first"
        asked = asyncio.run_coroutine_threadsafe(self._ask_others(method, b""), self._loop)
        with suppress(TimeoutError):
            return asked.result(2 * NUMBERS_TIMEOUT_S)
        raise errors.Unavailable("the event loop is too busy to ask the other processes")

    async def _in_all(self, operation: Operation, message: Message, caller: Caller) -> Message:
        """Do it here and in all others, in the order in which the first process is asked."""
        if self._index:
            asked = await self._ask(0, LEAD + operation.name, message.SerializeToString())
            return cast("Message", cast("Any", operation.response).FromString(asked))
        return await asyncio.shield(self._lead(operation, message, caller))  # all, or none of it

    async def _lead(self, operation: Operation, message: Message, caller: Caller) -> Message:
        async with self._turn:
            answer: Message = await operation.call(message, caller)
            await self._ask_others(APPLY + operation.name, message.SerializeToString(), None)
        return answer

    async def _of_all(self, operation: Operation, message: Message, caller: Caller) -> Message:
        total: Message = await operation.call(message, caller)
        content = message.SerializeToString()
        for answer in await self._ask_others(APPLY + operation.name, content):
            add_statistics(total, cast("Any", operation.response).FromString(answer))
        return total

    async def _ask_others(
        self, method: str, content: bytes, timeout_s: float | None = NUMBERS_TIMEOUT_S
    ) -> list[bytes]:
        others = (index for index in range(self._count) if index != self._index)
        asked = (self._ask(index, method, content, timeout_s) for index in others)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:  # after all have ended
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if isinstance(answer, bytes)]

    async def _ask(
        self, index: int, method: str, content: bytes, timeout_s: float | None = None
    ) -> bytes:
        """Another process's answer. Raises what it raised, and `Unavailable`."""
        channel = self._channels.get(index)
        if channel is None:
            channel = grpc.aio.insecure_channel(self._address(index), options=OPTIONS)
            self._channels[index] = channel
        place = f"process {index + 1} of {self._count}"
        try:
            call: Any = channel.unary_unary(method)
            answer: bytes = await call(content, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            kind, _, text = (error.details() or "").partition(": ")
            if error.code() is not grpc.StatusCode.INTERNAL:
                raise errors.Unavailable(f"{place} does not answer: ask again") from error
            raise KINDS.get(kind, errors.LoadError)(text or kind) from error
        return answer

    def _answer(
        self, operation: Operation, call: Callable[[Any, Caller], Awaitable[Any]]
    ) -> Answer:
        """A method that calls it, and ends with the kind and the text of an error."""

        async def answer(content: bytes, context: Any) -> bytes:  # noqa: ANN401
            message = cast("Any", operation.request).FromString(content)
            stay = Stay()
            current_stay.set(stay)
            try:
                answered: Message = await call(message, Caller(time.monotonic()))
            except errors.AttendantError as error:
                text = f"{type(error).__name__}: {details(error)}"
                await context.abort(grpc.StatusCode.INTERNAL, text)
            finally:
                self._admission.let_go(stay)
            return answered.SerializeToString()

        return answer

    def _address(self, index: int) -> str:
        return f"unix:{self._folder / f'{index}.sock'}"


def write_port(folder: Path, index: int, metrics_port: int) -> None:
    """Tell the starter of all processes where this one answers probes."""
    path = _port_file(folder, index)
    path.with_suffix(".new").write_text(str(metrics_port))
    path.with_suffix(".new").rename(path)


def read_port(folder: Path, index: int) -> int | None:
    """The port of a process's metrics and probes; None until it is open."""
    with suppress(FileNotFoundError):
        return int(_port_file(folder, index).read_text())
    return None


def _port_file(folder: Path, index: int) -> Path:
    return folder / f"{index}.metrics"


class _Handlers(grpc.GenericRpcHandler):
    """The methods by their whole paths, with contents as bytes."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            path: grpc.unary_unary_rpc_method_handler(cast("Any", answer))
            for path, answer in answers.items()
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return self._handlers.get(handler_call_details.method)
