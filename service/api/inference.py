"""The calls of the Open Inference Protocol, and Triton's ModelConfig, by the protocol's names.

Each converts the request, calls the model, and converts the answer; the calls of an extension are
in its own file. A front gives each a message and its caller.
"""

from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service import __version__
from service.api.admission import Admission
from service.api.calls import Calls
from service.api.infer import build_response, to_infer_request
from service.api.infer_stream import Exchange, InferAnswers, InferStream
from service.api.long_message import LongInferResponse
from service.api.model_control import ModelControlCalls
from service.api.observability import ObservabilityCalls
from service.api.regions import Transfer, shared_bytes
from service.api.shared_memory import SharedMemoryCalls
from service.observe.logs import LogFilter
from service.observe.trace_files import Tracing
from service.repository.repository import ModelRepository
from service.serving.model import Caller

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "parameters",
    "schedule_policy",
    "model_repository",
    "model_repository(unload_dependents)",
    "model_configuration",
    "statistics",
    "trace",
    "logging",
)


class InferenceCalls(ModelControlCalls, ObservabilityCalls, SharedMemoryCalls):
    """Answers for every model of the repository."""

    def __init__(
        self,
        repository: ModelRepository,
        admission: Admission,
        server_name: str,
        transfer: Transfer,
        tracing: Tracing,
        calls: Calls,
    ) -> None:
        self._repository = repository
        self._admission = admission
        self._server_name = server_name
        self._transfer = transfer
        self._tracing = tracing
        self._calls = calls
        self.answers = InferAnswers(repository, admission, transfer)
        self._logging = LogFilter()
        self._regions = transfer.regions

    async def ServerLive(
        self, request: pb.ServerLiveRequest, caller: Caller
    ) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=self._admission.is_live)

    async def ServerReady(
        self, request: pb.ServerReadyRequest, caller: Caller
    ) -> pb.ServerReadyResponse:
        is_ready = self._repository.readiness.is_ready and not self._admission.is_leaving
        return pb.ServerReadyResponse(ready=is_ready)

    async def ModelReady(
        self, request: pb.ModelReadyRequest, caller: Caller
    ) -> pb.ModelReadyResponse:
        is_ready = self._repository.has(request.name, request.version)
        return pb.ModelReadyResponse(ready=is_ready and not self._admission.is_leaving)

    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, caller: Caller
    ) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(
            name=self._server_name, version=__version__, extensions=self._extensions()
        )

    def _extensions(self) -> list[str]:
        return [*EXTENSIONS, *(["system_shared_memory"] if self._regions.is_allowed else [])]

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, caller: Caller
    ) -> pb.ModelMetadataResponse:
        model = self._repository.find(request.name, request.version)
        response = pb.ModelMetadataResponse(
            name=model.name,
            versions=[str(version) for version in self._repository.versions(model.name)],
            platform=model.interface.platform,
        )
        batch_axis = [-1] if model.interface.has_rows else []
        for field, specs in (
            (response.inputs, model.signature.inputs),
            (response.outputs, model.signature.outputs),
        ):
            for spec in specs:
                field.add(
                    name=spec.name, datatype=spec.datatype.name, shape=[*batch_axis, *spec.dims]
                )
        return response

    async def ModelConfig(
        self, request: pb.ModelConfigRequest, caller: Caller
    ) -> pb.ModelConfigResponse:
        model = self._repository.find(request.name, request.version)
        return pb.ModelConfigResponse(config=ModelConfig.FromString(model.interface.shown))

    async def ModelInfer(
        self, request: pb.ModelInferRequest, caller: Caller
    ) -> pb.ModelInferResponse | LongInferResponse:
        caller = Caller(caller.received_s, caller.deadline_s, request_id=request.id)
        model = self._repository.find(request.model_name, request.model_version)
        with model.users:
            with model.counted_failures(caller.received_s):
                infer_request = to_infer_request(request, model, self._transfer, caller)
            self._admission.admit(shared_bytes(request))
            reply = await model.infer(infer_request)
            return build_response(request, model, reply.outputs, self._transfer)

    async def ModelStreamInfer(self, exchange: Exchange) -> None:
        stream = InferStream(self._repository, self._admission, self.answers, exchange, self._calls)
        await stream.serve()
