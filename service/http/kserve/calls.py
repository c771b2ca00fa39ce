"""Inference over HTTP: each call reads its body, asks an operation, and writes the answer.

Long bodies are read and written on a thread. Lives on the event loop.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from service.api.infer_stream import PATH as STREAM_INFER
from service.api.infer_stream import Exchange
from service.api.infer_stream import Response as StreamResponse
from service.api.long_message import LongInferRequest, LongInferResponse
from service.api.wire import PACKED_BYTES
from service.contract.interface import ModelInterface
from service.errors import InvalidArgument
from service.http.kserve.generate import parse_generate, write_generated
from service.http.kserve.raw_request import raw_infer
from service.http.kserve.request import HEADER_LENGTH, InferCall, header_length_of, parse_infer
from service.http.kserve.response import JSON, Response, num_data_bytes, write_infer
from service.http.request import Reply, Request
from service.http.status import HttpError
from service.http.stream import Stream
from service.http.wire.compression import WORTH_BYTES, best_encoding, compressed, is_long
from service.repository.repository import ModelRepository
from service.settings import Settings

T = TypeVar("T")
PREFIX = "/inference.GRPCInferenceService/"
MODEL_INFER = PREFIX + "ModelInfer"
LONG_JSON_BYTES = 2**16  # of a request; to parse as much takes a millisecond
JSON_COPIES = 4  # of a request's JSON, as arrays and strings, besides its bytes
LONG_BODY_BYTES = 2**22  # of which most tensors are copied, as they begin at any byte
LONG_DATA_BYTES = 2**15  # of tensors that become JSON, which is five times as long
PIECE_BYTES = 2**18  # of an answer, handed to the connection at once
_END = object()


class TensorCalls:
    """The calls that take and give tensors."""

    def __init__(self, settings: Settings, repository: ModelRepository) -> None:
        self._repository = repository
        # As many bytes as gRPC takes of typed numbers; larger tensors go binary.
        self._max_json_bytes = settings.max_message_parts * PACKED_BYTES
        self._max_parts = settings.max_message_parts

    async def infer(self, request: Request) -> Reply:
        call = await self._infer_call(request)
        response = await request.ask(MODEL_INFER, call.message)
        is_long_json = num_data_bytes(response, call.delivery) > LONG_DATA_BYTES
        answer = await _run(partial(write_infer, response, call.delivery), is_long=is_long_json)
        headers: list[tuple[bytes, bytes]] = []
        if answer.header_length is not None:
            headers.append((HEADER_LENGTH.lower().encode(), b"%d" % answer.header_length))
        return await _reply(request, answer.buffers, answer.content_type, headers)

    async def generate(self, request: Request) -> Reply:
        message = await self._generate_message(request)
        response = await request.ask(MODEL_INFER, message)
        return await _reply(request, [await _generated(response)], JSON)

    async def generate_stream(self, request: Request) -> None:
        """Answers by events; what refuses the request before the first one is its status."""
        message = await self._generate_message(request)
        stream = Stream(request)

        async def write(response: StreamResponse) -> None:
            if not isinstance(response, LongInferResponse):
                if response.error_message:
                    raise HttpError(500, response.error_message, kind="server_error")
                response = response.infer_response
            if response.outputs:
                await stream.send(await _generated(response))

        requests = iter((message, _END))

        async def read() -> object:
            return next(requests)

        exchange = Exchange(
            read, _END, write, request.arrival, ends_on_errors=True, ends_on_refusals=True
        )
        await request.front.operations[STREAM_INFER].call(exchange)
        await stream.end()

    async def _infer_call(self, request: Request) -> InferCall:
        body = request.body
        name, version = model_of(request)
        stated = request.headers.get(HEADER_LENGTH.lower().encode())
        length = header_length_of(None if stated is None else stated.decode("latin-1"), len(body))
        if stated is not None and not length:
            return raw_infer(body, version, self._interface(name, version))
        self._check_json(length)
        parse = partial(parse_infer, body, length, name, version, self._max_parts)
        return await self._read(request, parse, length)

    async def _generate_message(self, request: Request) -> LongInferRequest:
        body = request.body
        name, version = model_of(request)
        interface = self._interface(name, version)
        self._check_json(len(body))
        parse = partial(parse_generate, body, version, interface, self._max_parts)
        return await self._read(request, parse, len(body))

    async def _read(self, request: Request, parse: Callable[[], T], num_json_bytes: int) -> T:
        """The request that a body is; a long one is read on a thread, its memory admitted."""
        is_long = num_json_bytes > LONG_JSON_BYTES or len(request.body) > LONG_BODY_BYTES
        if not is_long:
            return parse()
        request.front.admission.take_memory(JSON_COPIES * num_json_bytes)
        return await request.front.admission.run_long(parse)

    def _interface(self, name: str, version: str) -> ModelInterface:
        return self._repository.find(name, version).interface

    def _check_json(self, num_bytes: int) -> None:
        if num_bytes > self._max_json_bytes:
            raise InvalidArgument(
                f"request JSON size of {num_bytes} bytes exceeds the maximum allowed input size of "
                f"{self._max_json_bytes} bytes: send large tensors binary"
            )


def model_of(request: Request) -> tuple[str, str]:
    """The name and the version, or nothing, in a request's path."""
    return request.parameters["model"], request.parameters.get("version", "")


async def _generated(response: Response) -> bytes:
    num_bytes = sum(map(len, response.raw_output_contents))
    return await _run(partial(write_generated, response), is_long=num_bytes > LONG_DATA_BYTES)


async def _run(work: Callable[[], T], *, is_long: bool) -> T:
    """The result of the work, which a thread does if it takes long."""
    return await asyncio.to_thread(work) if is_long else work()


async def _reply(
    request: Request,
    buffers: Sequence[bytes | memoryview],
    content_type: str,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> Reply:
    """The reply, compressed as the client accepts it where that is worth it."""
    num_bytes = sum(map(len, buffers))
    encoding = best_encoding(request.header("accept-encoding"))
    if encoding != "identity" and num_bytes >= WORTH_BYTES:
        compress = partial(compressed, buffers, encoding)
        buffers = await _run(compress, is_long=is_long(num_bytes))
        headers = (*headers, (b"content-encoding", encoding.encode()), _VARY)
    return Reply(list(_sliced(buffers)), content_type=content_type.encode(), headers=tuple(headers))


def _sliced(buffers: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Bytes in pieces: a transport copies what a client has not taken yet of one."""
    for buffer in buffers:
        if len(buffer) <= PIECE_BYTES:
            yield buffer
            continue
        view = memoryview(buffer)
        for start in range(0, len(view), PIECE_BYTES):
            yield view[start : start + PIECE_BYTES]


_VARY = (b"vary", b"accept-encoding")
