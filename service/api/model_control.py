"""The calls that list the repository's models, load and unload them."""

import asyncio
from collections.abc import Mapping

from tritonclient.grpc import service_pb2 as pb

from service.api.admission import Admission
from service.errors import InvalidArgument, Unimplemented
from service.repository.repository import ModelRepository
from service.serving.model import Caller

FILE_PREFIX = "file:"


class ModelControlCalls:
    """RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload.

    KServe's copy of the protocol has the model's name in field 1, where Triton's has the
    repository's, and two fields in the responses: a client that names no model but a repository
    is one of KServe's, and is answered so.
    """

    _repository: ModelRepository
    _admission: Admission

    async def RepositoryIndex(
        self, request: pb.RepositoryIndexRequest, caller: Caller
    ) -> pb.RepositoryIndexResponse:
        if request.repository_name:
            raise Unimplemented("'repository_name' specification is not supported")
        response = pb.RepositoryIndexResponse()
        for row in await self._repository.index():
            if row.state == "READY" or not request.ready:
                response.models.add(
                    name=row.name, version=row.version, state=row.state, reason=row.reason
                )
        return response

    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, caller: Caller
    ) -> pb.RepositoryModelLoadResponse:
        self._admission.admit()  # its bytes count, and a drain answers it
        name, is_kserve = _name_of(request)
        config_json, files = _overrides(request.parameters)
        loading = asyncio.ensure_future(self._repository.load(name, config_json, files))
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            self._admission.hold_until(loading)  # it goes on, with all that was sent
            raise
        response = pb.RepositoryModelLoadResponse()
        if is_kserve:
            response.MergeFromString(_kserve_answer(name))
        return response

    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, caller: Caller
    ) -> pb.RepositoryModelUnloadResponse:
        for key, value in request.parameters.items():
            if key != "unload_dependents":
                raise InvalidArgument(f"unrecognized unload parameter '{key}'.")
            # Only adapters depend on a model, and without it they are not served with either value.
            _check_type("unload", key, value, "bool_param")
        name, is_kserve = _name_of(request)
        await self._repository.unload(name)
        response = pb.RepositoryModelUnloadResponse()
        if is_kserve:
            response.MergeFromString(_kserve_answer(name))
        return response


def _name_of(
    request: pb.RepositoryModelLoadRequest | pb.RepositoryModelUnloadRequest,
) -> tuple[str, bool]:
    """The model's name, and whether a client of KServe's gave it."""
    if request.model_name:
        return request.model_name, False
    return request.repository_name, bool(request.repository_name)


def _overrides(
    parameters: Mapping[str, pb.ModelRepositoryParameter],
) -> tuple[str | None, dict[str, bytes]]:
    """The configuration and the files, by path, that replace what is on disk."""
    config_json = None
    files: dict[str, bytes] = {}
    for key, value in parameters.items():
        if key == "config":
            _check_type("load", key, value, "string_param")
            config_json = value.string_param
        elif key.startswith(FILE_PREFIX):
            _check_type("load", key, value, "bytes_param")
            files[key.removeprefix(FILE_PREFIX)] = value.bytes_param
        else:
            raise InvalidArgument(f"unrecognized load parameter '{key}'.")
    return config_json, files


def _check_type(call: str, key: str, value: pb.ModelRepositoryParameter, expected: str) -> None:
    if value.WhichOneof("parameter_choice") != expected:
        raise InvalidArgument(
            f"invalid value type for {call} parameter '{key}', expected {expected}."
        )


def _kserve_answer(name: str) -> bytes:
    """KServe's responses: `model_name`, and `isLoaded` or `isUnloaded`, as in this message."""
    alike: bytes = pb.RepositoryIndexRequest(repository_name=name, ready=True).SerializeToString()
    return alike
