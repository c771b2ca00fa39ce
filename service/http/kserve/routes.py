"""The routes of the protocol that take tensors or control the server.

The control calls' bodies are short, but for models that are sent: a thread reads those.
"""

from collections.abc import Iterator
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from service.api.infer_stream import PATH as STREAM_INFER
from service.errors import InvalidArgument, Unimplemented
from service.http.body import Body
from service.http.kserve import control
from service.http.kserve.calls import LONG_JSON_BYTES, MODEL_INFER, PREFIX, TensorCalls
from service.http.kserve.metadata import MODEL, VERSION
from service.http.kserve.request import InferBody
from service.http.request import Reply, Request
from service.http.routes import Handler, Route
from service.http.wire.json_parts import check_json
from service.repository.repository import ModelRepository
from service.settings import Settings

REPOSITORY = "/v2/repository/{repository}"
SHORT_BYTES = 2**18  # of a call that sends no model
SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"


def protocol_routes(settings: Settings, repository: ModelRepository) -> Iterator[Route]:
    """The routes, beside those that describe the server and its models."""
    tensors = TensorCalls(settings, repository)
    for place in (MODEL, VERSION):
        yield Route(
            "POST", f"{place}/infer", tensors.infer, MODEL_INFER, (InferBody,), takes_bytes=True
        )
        yield Route("POST", f"{place}/generate", tensors.generate, MODEL_INFER)
        yield Route("POST", f"{place}/generate_stream", tensors.generate_stream, STREAM_INFER)
    for place in ("/v2/repository", REPOSITORY):
        yield _route("POST", f"{place}/index", index, "RepositoryIndex")
        yield Route(
            *("POST", f"{place}/models/{{model}}/load", load, f"{PREFIX}RepositoryModelLoad"),
            takes_files=True,
        )
        yield _route("POST", f"{place}/models/{{model}}/unload", unload, "RepositoryModelUnload")
    for method in ("GET", "POST"):
        yield _route(method, "/v2/trace/setting", trace_setting, "TraceSetting")
        yield _route(method, f"{MODEL}/trace/setting", trace_setting, "TraceSetting")
        yield _route(method, "/v2/logging", logging, "LogSettings")
    for place in ("", "/region/{region}"):
        for prefix, kind in ((SYSTEM, "System"), (CUDA, "Cuda")):
            calls = _SHARED_MEMORY[kind]
            for action, method in (("status", "GET"), ("register", "POST"), ("unregister", "POST")):
                name = f"{kind}SharedMemory{action.capitalize()}"
                yield _route(method, f"{prefix}{place}/{action}", calls[action], name)


def _route(method: str, path: str, handler: Handler, operation: str) -> Route:
    return Route(method, path, handler, PREFIX + operation)


def _short(request: Request) -> Body:
    """The body of a call that has a few settings to say. Raises `InvalidArgument`."""
    num_bytes = len(request.body)
    if num_bytes > SHORT_BYTES:
        raise InvalidArgument(
            f"request JSON size of {num_bytes} bytes exceeds the maximum allowed input size of "
            f"{SHORT_BYTES} bytes"
        )
    check_json(request.body, control.MAX_PARTS, control.MAX_DEPTH)
    return request.body


async def _ask(request: Request, operation: str, message: object) -> Any:  # noqa: ANN401 - messages
    return await request.ask(PREFIX + operation, message)


async def index(request: Request) -> Reply:
    message = control.index_request(_short(request), request.parameters.get("repository", ""))
    response = await _ask(request, "RepositoryIndex", message)
    return Reply.json(control.write_index(response))


async def load(request: Request) -> Reply:
    _refuse_repository(request)
    body, model = request.body, request.parameters["model"]
    max_parts = request.front.settings.max_message_parts

    def read() -> pb.RepositoryModelLoadRequest:
        check_json(body, max_parts, control.MAX_DEPTH)
        return control.load_request(body, model)

    is_long = len(body) > LONG_JSON_BYTES
    message = await request.front.admission.run_long(read) if is_long else read()
    await _ask(request, "RepositoryModelLoad", message)
    return Reply()


async def unload(request: Request) -> Reply:
    _refuse_repository(request)
    message = control.unload_request(_short(request), request.parameters["model"])
    await _ask(request, "RepositoryModelUnload", message)
    return Reply()


def _refuse_repository(request: Request) -> None:
    if "repository" in request.parameters:
        raise Unimplemented("'repository_name' specification is not supported")


async def trace_setting(request: Request) -> Reply:
    message = control.trace_request(_short(request), request.parameters.get("model", ""))
    return Reply.json(control.write_trace_settings(await _ask(request, "TraceSetting", message)))


async def logging(request: Request) -> Reply:
    message = control.log_request(_short(request))
    return Reply.json(control.write_log_settings(await _ask(request, "LogSettings", message)))


async def system_status(request: Request) -> Reply:
    message = pb.SystemSharedMemoryStatusRequest(name=_region(request))
    response = await _ask(request, "SystemSharedMemoryStatus", message)
    return Reply.json(control.write_regions(response))


async def system_register(request: Request) -> Reply:
    message = control.register_request(_short(request), _region(request))
    await _ask(request, "SystemSharedMemoryRegister", message)
    return Reply()


async def system_unregister(request: Request) -> Reply:
    message = pb.SystemSharedMemoryUnregisterRequest(name=_region(request))
    await _ask(request, "SystemSharedMemoryUnregister", message)
    return Reply()


async def cuda_status(request: Request) -> Reply:
    message = pb.CudaSharedMemoryStatusRequest(name=_region(request))
    response = await _ask(request, "CudaSharedMemoryStatus", message)
    return Reply.json(control.write_regions(response))


async def cuda_register(request: Request) -> Reply:
    message = pb.CudaSharedMemoryRegisterRequest(name=_region(request))
    await _ask(request, "CudaSharedMemoryRegister", message)
    return Reply()


async def cuda_unregister(request: Request) -> Reply:
    message = pb.CudaSharedMemoryUnregisterRequest(name=_region(request))
    await _ask(request, "CudaSharedMemoryUnregister", message)
    return Reply()


def _region(request: Request) -> str:
    return request.parameters.get("region", "")


_SHARED_MEMORY: dict[str, dict[str, Handler]] = {
    "System": {
        "status": system_status,
        "register": system_register,
        "unregister": system_unregister,
    },
    "Cuda": {"status": cuda_status, "register": cuda_register, "unregister": cuda_unregister},
}
