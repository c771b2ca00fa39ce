"""`GET /openapi.json`: OpenAPI 3.1 of the whole port, from the routes, their records and messages.

Made when it is first asked for, on a thread. docs/reference/openapi.json is what it gives; a test
compares.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from google.protobuf.message import Message

from service import __version__
from service.api.operations import Operation
from service.http.numbers import number_schema
from service.http.request import Reply, Request
from service.http.routes import OPEN, Route
from service.http.status import ANTHROPIC, OPENAI, PLAIN, TRITON, TYPED, writer_of
from service.http.wire.message_schemas import Schema, messages_in, schema_of

METADATA = "/inference.GRPCInferenceService/ServerMetadata"
REFERENCE = "#/components/schemas/{name}"
TYPED_PATH = "/api/{method}"
JSON, EVENTS, LINES = "application/json", "text/event-stream", "application/x-ndjson"
ANY_OBJECT: Schema = {"type": "object"}
_TEXT = {"type": "string"}
ERRORS: dict[str, Schema] = {
    "ErrorText": {
        "type": "object",
        "properties": {"error": _TEXT},
        "required": ["error"],
    },
    "TypedError": {
        "type": "object",
        "properties": {"error": _TEXT, "status": _TEXT, "field": _TEXT},
        "required": ["error"],
    },
    "AnthropicError": {
        "type": "object",
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "properties": {"type": _TEXT, "message": _TEXT},
                "required": ["type", "message"],
            },
        },
        "required": ["type", "error"],
    },
    "OpenAIError": {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "message": _TEXT,
                    "type": _TEXT,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
                "required": ["message", "type", "param", "code"],
            }
        },
        "required": ["error"],
    },
}


ERROR_OF = {
    OPENAI: "OpenAIError",
    TRITON: "ErrorText",
    PLAIN: "ErrorText",
    TYPED: "TypedError",
    ANTHROPIC: "AnthropicError",
}


def openapi_routes(
    routes: Sequence[Route], operations: Mapping[str, Operation]
) -> tuple[Route, ...]:
    """The route of the description of all routes, itself among them."""
    made: list[bytes] = []

    def make() -> bytes:
        return msgspec.json.encode(description((*routes, *own), operations))

    async def show(_: Request) -> Reply:
        if not made:
            made.append(await asyncio.to_thread(make))
        return Reply(made[0])

    own = (Route("GET", "/openapi.json", show, METADATA),)
    return own


def description(routes: Iterable[Route], operations: Mapping[str, Operation]) -> Schema:
    """The document of OpenAPI."""
    expanded = list(_expanded(routes, operations))
    records = sorted({body for route, _ in expanded for body in route.bodies}, key=_name_of)
    references, schemas = msgspec.json.schema_components(
        records, schema_hook=number_schema, ref_template=REFERENCE
    )
    reference_of = dict(zip(records, references, strict=True))
    typed = [operation for _, operation in expanded if operation is not None]
    paths: dict[str, Schema] = {}
    for route, operation in expanded:
        described = _described(route, operation, reference_of, operations)
        paths.setdefault(route.path, {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Attendant", "version": __version__},
        "security": [{}, {"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": dict(sorted({**schemas, **_messages(typed), **ERRORS}.items())),
        },
    }


def _expanded(
    routes: Iterable[Route], operations: Mapping[str, Operation]
) -> Iterator[tuple[Route, Operation | None]]:
    """The routes, with one for each method of the typed API, and the method."""
    for route in routes:
        if route.path != TYPED_PATH:
            yield route, None
            continue
        for operation in operations.values():
            if operation.is_typed:
                path = TYPED_PATH.format(method=operation.name)
                yield Route(route.method, path, route.handler, operation.path), operation


def _described(
    route: Route,
    typed: Operation | None,
    reference_of: Mapping[type, Schema],
    operations: Mapping[str, Operation],
) -> Schema:
    names = re.findall(r"{(\w+)}", route.path)
    operation = route.operation_path(dict.fromkeys(names, "")) if typed else route.operation
    described: Schema = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{route.path}").strip("_"),
        "responses": _responses(route, typed, operations),
    }
    if isinstance(operation, str):
        described["x-operation"] = operation
    if operation == OPEN:
        described["security"] = [{}]
    if names:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names
        ]
    if route.method == "POST":
        content = {JSON: {"schema": _body(route, typed, reference_of)}}
        if route.takes_bytes:
            content["application/octet-stream"] = {"schema": {}}
        if route.form is not None:
            content = {"multipart/form-data": {"schema": dict(route.form)}}
        described["requestBody"] = {"content": content}
    return described


def _body(route: Route, typed: Operation | None, reference_of: Mapping[type, Schema]) -> Schema:
    if typed is not None:
        return _reference(typed.request)
    references = [reference_of[body] for body in route.bodies]
    if len(references) == 1:
        return references[0]
    return {"anyOf": references} if references else ANY_OBJECT


def _responses(
    route: Route, typed: Operation | None, operations: Mapping[str, Operation]
) -> Schema:
    schema = {} if typed is None else _reference(typed.response)
    operation = operations.get(route.operation) if isinstance(route.operation, str) else None
    is_stream = operation is not None and operation.kind != "unary"
    kinds = (route.gives,) if typed is None or not is_stream else (LINES,)
    content = {kind: {"schema": schema} for kind in (*kinds, *((EVENTS,) if is_stream else ()))}
    error = ERROR_OF[writer_of(route.path)]
    refused = {JSON: {"schema": {"$ref": REFERENCE.format(name=error)}}}
    unready = {"503": {"description": "It is not so, in the same form.", "content": content}}
    return {
        "200": {"description": "The answer.", "content": content},
        **(unready if route.answers_503 else {}),
        "default": {"description": "Why there is none.", "content": refused},
    }


def _messages(typed: Iterable[Operation]) -> dict[str, Schema]:
    reference = REFERENCE.format(name="v1.{name}")
    return {
        f"v1.{message.name}": schema_of(message, reference)
        for operation in typed
        for outer in (operation.request, operation.response)
        for message in messages_in(outer)
    }


def _reference(kind: type[Message]) -> Schema:
    return {"$ref": REFERENCE.format(name=f"v1.{kind.DESCRIPTOR.name}")}


def _name_of(record: type[Any]) -> str:
    return f"{record.__module__}.{record.__qualname__}"
