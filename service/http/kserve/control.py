"""The bodies of the calls that control the server, and what they answer, beside their messages.

Repository, trace settings, log settings and shared memory. Pure, for any thread.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct
from tritonclient.grpc import service_pb2 as pb

from service.api.model_control import FILE_PREFIX
from service.errors import InvalidArgument
from service.http.kserve.request import decode_json
from service.http.wire.compression import Buffer
from service.http.wire.plain import plain

# Of a body with settings.
MAX_PARTS, MAX_DEPTH = 2_048, 16
UInt64: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # msgspec bounds no larger ones


class IndexBody(Struct):
    """Which models a client wants to be listed."""

    ready: bool | None = None


class ControlBody(Struct):
    """The parameters of loading or unloading a model."""

    parameters: dict[str, bool | int | float | str] | None = None


class RegisterBody(Struct):
    """A region of system shared memory."""

    key: str
    byte_size: UInt64
    offset: UInt64 = 0


_INDEX = msgspec.json.Decoder(IndexBody)
_CONTROL = msgspec.json.Decoder(ControlBody)
_REGISTER = msgspec.json.Decoder(RegisterBody)
_SETTINGS = msgspec.json.Decoder(dict[str, Any])


def index_request(body: Buffer, repository: str) -> pb.RepositoryIndexRequest:
    ready = bool(len(body)) and bool(decode_json(_INDEX, body).ready)
    return pb.RepositoryIndexRequest(repository_name=repository, ready=ready)


def write_index(response: pb.RepositoryIndexResponse) -> list[dict[str, Any]]:
    return [plain(model) for model in response.models]


def load_request(body: Buffer, model: str) -> pb.RepositoryModelLoadRequest:
    """The request; files are base64 in JSON. Raises `InvalidArgument`."""
    request = pb.RepositoryModelLoadRequest(model_name=model)
    for name, value in _parameters(body).items():
        if name.startswith(FILE_PREFIX) and isinstance(value, str):
            request.parameters[name].bytes_param = _decoded(name, value)
        else:
            _set_parameter(request.parameters[name], name, value)
    return request


def unload_request(body: Buffer, model: str) -> pb.RepositoryModelUnloadRequest:
    request = pb.RepositoryModelUnloadRequest(model_name=model)
    for name, value in _parameters(body).items():
        _set_parameter(request.parameters[name], name, value)
    return request


def _parameters(body: Buffer) -> dict[str, bool | int | float | str]:
    control: ControlBody = decode_json(_CONTROL, body) if body else ControlBody()
    return control.parameters or {}


def _decoded(name: str, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"Unable to decode the base64 of parameter '{name}'") from error


def _set_parameter(parameter: pb.ModelRepositoryParameter, name: str, value: object) -> None:
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, str):
        parameter.string_param = value
    elif isinstance(value, int) and -(2**63) <= value < 2**63:
        parameter.int64_param = value
    else:
        raise InvalidArgument(
            f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'."
        )


def trace_request(body: Buffer, model: str) -> pb.TraceSettingRequest:
    """The request; null restores a setting's default. Raises `InvalidArgument`."""
    request = pb.TraceSettingRequest(model_name=model)
    for name, value in _settings(body).items():
        words = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(word, str | int) and not isinstance(word, bool) for word in words):
            raise InvalidArgument(f"trace setting '{name}' is no string, or list of strings")
        request.settings[name].value.extend(map(str, words))
    return request


def write_trace_settings(response: pb.TraceSettingResponse) -> dict[str, Any]:
    """Every setting as a string, and the levels as a list of them."""
    return {
        name: list(setting.value) if name == "trace_level" else ",".join(setting.value)
        for name, setting in response.settings.items()
    }


def log_request(body: Buffer) -> pb.LogSettingsRequest:
    """The request; null leaves a setting as it is. Raises `InvalidArgument`."""
    request = pb.LogSettingsRequest()
    for name, value in _settings(body).items():
        if value is None:
            continue
        setting = request.settings[name]
        if isinstance(value, bool):
            setting.bool_param = value
        elif isinstance(value, int) and 0 <= value < 2**32:
            setting.uint32_param = value
        elif isinstance(value, str):
            setting.string_param = value
        else:
            raise InvalidArgument(f"log setting '{name}' is no string, boolean or 32-bit number")
    return request


def write_log_settings(response: pb.LogSettingsResponse) -> dict[str, Any]:
    return {
        name: getattr(setting, setting.WhichOneof("parameter_choice"))
        for name, setting in response.settings.items()
    }


def _settings(body: Buffer) -> Mapping[str, Any]:
    settings: dict[str, Any] = decode_json(_SETTINGS, body) if body else {}
    return settings


def register_request(body: Buffer, region: str) -> pb.SystemSharedMemoryRegisterRequest:
    region_body: RegisterBody = decode_json(_REGISTER, body)
    return pb.SystemSharedMemoryRegisterRequest(
        name=region,
        key=region_body.key,
        offset=region_body.offset,
        byte_size=region_body.byte_size,
    )


def write_regions(
    response: pb.SystemSharedMemoryStatusResponse | pb.CudaSharedMemoryStatusResponse,
) -> list[dict[str, Any]]:
    return [plain(region) for region in response.regions.values()]
