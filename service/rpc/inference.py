"""`inference.GRPCInferenceService`: the Open Inference Protocol, and Triton's ModelConfig.

Each method converts the request, calls the model, and converts the answer; the calls of an
extension are in its own file.
"""

from collections.abc import AsyncIterable

from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service import __version__
from service.api.admission import Admission
from service.api.infer import build_response, to_infer_request
from service.api.long_message import LongInferResponse
from service.api.regions import Transfer, shared_bytes
from service.observe.logs import LogFilter
from service.observe.trace_files import Tracing
from service.repository.repository import ModelRepository
from service.rpc.calls import Calls
from service.rpc.model_control import ModelControlCalls
from service.rpc.observability import ObservabilityCalls
from service.rpc.shared_memory import SharedMemoryCalls
from service.rpc.status import INFERENCE_CODES, Context, answers_errors, caller_of
from service.rpc.streaming import InferStream

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


class InferenceService(
    ModelControlCalls,
    ObservabilityCalls,
    SharedMemoryCalls,
    service_pb2_grpc.GRPCInferenceServiceServicer,  # type: ignore[misc]
):
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
        self._logging = LogFilter()
        self._regions = transfer.regions

    @answers_errors(INFERENCE_CODES)
    async def ServerLive(
        self, request: pb.ServerLiveRequest, context: Context
    ) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=self._admission.is_live)

    @answers_errors(INFERENCE_CODES)
    async def ServerReady(
        self, request: pb.ServerReadyRequest, context: Context
    ) -> pb.ServerReadyResponse:
        is_ready = self._repository.readiness.is_ready and not self._admission.is_leaving
        return pb.ServerReadyResponse(ready=is_ready)

    @answers_errors(INFERENCE_CODES)
    async def ModelReady(
        self, request: pb.ModelReadyRequest, context: Context
    ) -> pb.ModelReadyResponse:
        is_ready = self._repository.has(request.name, request.version)
        return pb.ModelReadyResponse(ready=is_ready and not self._admission.is_leaving)

    @answers_errors(INFERENCE_CODES)
    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, context: Context
    ) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(
            name=self._server_name, version=__version__, extensions=self._extensions()
        )

    def _extensions(self) -> list[str]:
        return [*EXTENSIONS, *(["system_shared_memory"] if self._regions.is_allowed else [])]

    @answers_errors(INFERENCE_CODES)
    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: Context
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

    @answers_errors(INFERENCE_CODES)
    async def ModelConfig(
        self, request: pb.ModelConfigRequest, context: Context
    ) -> pb.ModelConfigResponse:
        model = self._repository.find(request.name, request.version)
        return pb.ModelConfigResponse(config=ModelConfig.FromString(model.interface.shown))

    @answers_errors(INFERENCE_CODES)
    async def ModelInfer(
        self, request: pb.ModelInferRequest, context: Context
    ) -> pb.ModelInferResponse | LongInferResponse:
        caller = caller_of(context, request_id=request.id)
        model = self._repository.find(request.model_name, request.model_version)
        with model.users:
            infer_request = to_infer_request(request, model, self._transfer, caller)
            self._admission.admit(shared_bytes(request))
            reply = await model.infer(infer_request)
            return build_response(request, model, reply.outputs, self._transfer)

    @answers_errors(INFERENCE_CODES)
    async def ModelStreamInfer(
        self, requests: AsyncIterable[pb.ModelInferRequest], context: Context
    ) -> None:
        stream = InferStream(
            self._repository, self._admission, context, self._transfer, self._calls
        )
        await stream.serve()
