"""`POST /api/{method}`: every method of the typed API, by the JSON of its messages.

One handler for all: the table of operations has their messages and calls. `Generate` answers with a
line of JSON for each chunk, or with events where the client accepts those.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from service.api.long_work import LONG_BYTES
from service.api.operations import Operation
from service.errors import InvalidArgument
from service.http.body import Body, JsonBounds
from service.http.messages import parse_json, to_json
from service.http.request import Reply, Request
from service.http.routes import Parameters, Route
from service.http.status import HttpError
from service.http.stream import Stream
from service.http.wire.json_parts import check_characters

EVENTS = "text/event-stream"


def typed_routes(operations: Mapping[str, Operation]) -> tuple[Route, ...]:
    """The one route, for methods of the typed API by their names."""
    paths = {each.name: path for path, each in operations.items() if each.is_typed}

    def path_of(parameters: Parameters) -> str:
        path = paths.get(parameters["method"])
        if path is None:
            known = ", ".join(sorted(paths))
            raise HttpError(
                404, f"there is no such method, expected one of {known}", code="not_found"
            )
        return path

    with_files = {path for path in paths.values() if _has_files(operations[path].request)}

    async def answer(request: Request) -> Reply | None:
        operation = operations[path_of(request.parameters)]
        message = await _read(request, operation, has_files=operation.path in with_files)
        if operation.kind == "unary":
            return Reply(await _written(request, await request.ask(operation.path, message)))
        await _stream(request, operation, message)
        return None

    return (Route("POST", "/api/{method}", answer, path_of),)


async def _read(request: Request, operation: Operation, *, has_files: bool) -> Message:
    empty = operation.request()
    await request.check_json(has_files=has_files)
    if has_files:
        max_characters = JsonBounds.of(request.front.settings).max_characters
        await request.work(lambda: _check_texts(request.body, operation.request, max_characters))
    return await request.work(lambda: parse_json(request.body, empty))


def _has_files(kind: type[Message]) -> bool:
    """Whether a message has files, which are long texts in JSON."""
    return bool(_files(kind))


def _files(kind: type[Message]) -> set[str]:
    """Names of the fields of a message that are files, as JSON may write them."""
    descriptor: Any = kind.DESCRIPTOR
    files = [field for field in descriptor.fields if field.type == FieldDescriptor.TYPE_BYTES]
    return {name for field in files for name in (field.name, field.json_name)}


def _check_texts(body: Body, kind: type[Message], max_characters: int) -> None:
    """Hold the texts beside a message's files to the bound that texts have. Raises `HttpError`."""
    if len(body) <= max_characters:
        return
    with suppress(msgspec.MsgspecError):  # what is no object is refused where it is read
        values = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        files = _files(kind)
        for name, value in values.items():
            if name not in files and len(value) > max_characters:
                try:
                    check_characters(len(value) - 2, value, max_characters)  # but for its quotes
                except InvalidArgument as error:
                    raise HttpError(400, f"{name}: {error}", code="request_too_large") from error


async def _written(request: Request, message: Message) -> bytes:
    if message.ByteSize() <= LONG_BYTES:
        return to_json(message)
    return await request.front.admission.run_long(lambda: to_json(message))


async def _stream(request: Request, operation: Operation, message: Message) -> None:
    stream = Stream(request, "events" if EVENTS in request.header("accept") else "lines")

    async def write(chunk: Message) -> None:
        await stream.send(to_json(chunk, has_defaults=False))

    await request.ask(operation.path, message, write)
    await stream.end()
