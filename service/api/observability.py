"""The calls for statistics of models, and for trace and log settings."""

from dataclasses import asdict

from tritonclient.grpc import service_pb2 as pb

from service.errors import InvalidArgument
from service.observe.logs import LogFilter
from service.observe.statistics import ComputeDurations, Duration, Statistics
from service.observe.trace_files import Tracing
from service.repository.repository import ModelRepository
from service.repository.version import parse_version
from service.serving.model import Caller, ServedModel


class ObservabilityCalls:
    """ModelStatistics, TraceSetting and LogSettings."""

    _repository: ModelRepository
    _tracing: Tracing
    _logging: LogFilter

    async def ModelStatistics(
        self, request: pb.ModelStatisticsRequest, caller: Caller
    ) -> pb.ModelStatisticsResponse:
        response = pb.ModelStatisticsResponse()
        for model in self._models(request.name, request.version):
            with model.statistics() as statistics:
                response.model_stats.append(_to_message(model, statistics))
        return response

    async def TraceSetting(
        self, request: pb.TraceSettingRequest, caller: Caller
    ) -> pb.TraceSettingResponse:
        name = request.model_name
        if name and not self._repository.has(name):
            raise InvalidArgument(f"Request for unknown model : {name}")
        if request.settings:
            changes = {key: list(setting.value) for key, setting in request.settings.items()}
            self._tracing.update(changes, name)
        response = pb.TraceSettingResponse()
        for key, values in self._tracing.settings(name).items():
            response.settings[key].value.extend(values)
        return response

    async def LogSettings(
        self, request: pb.LogSettingsRequest, caller: Caller
    ) -> pb.LogSettingsResponse:
        if request.settings:
            self._logging.update({key: _value(value) for key, value in request.settings.items()})
        response = pb.LogSettingsResponse()
        for key, value in asdict(self._logging.values).items():
            setattr(response.settings[key], _CHOICES[type(value)], value)
        return response

    def _models(self, name: str, version: str) -> list[ServedModel]:
        """The requested ones: all versions of all models if neither is named."""
        number = parse_version(version)
        models = [model for model in self._repository.models() if name in ("", model.name)]
        if name and not models:
            raise InvalidArgument(f"requested model '{name}' is not available")
        if not name or number is None:
            return models
        chosen = [model for model in models if model.version == number]
        if not chosen:
            raise InvalidArgument(f"requested model version is not available for model '{name}'")
        return chosen


_CHOICES = {bool: "bool_param", int: "uint32_param", str: "string_param"}


def _value(setting: pb.LogSettingsRequest.SettingValue) -> bool | int | str | None:
    """The value that a client sent, of any type; None if it sent none."""
    choice = setting.WhichOneof("parameter_choice")
    value: bool | int | str | None = getattr(setting, choice) if choice else None
    return value


def _to_message(model: ServedModel, statistics: Statistics) -> pb.ModelStatistics:
    durations = {
        "success": statistics.success,
        "fail": statistics.fail,
        "queue": statistics.queue,
        "cache_hit": statistics.cache_hit,
        "cache_miss": statistics.cache_miss,
    }
    parts = _parts(statistics.compute) | {
        name: _duration(duration) for name, duration in durations.items()
    }
    return pb.ModelStatistics(
        name=model.name,
        version=str(model.version),
        last_inference=statistics.last_inference_ms,
        inference_count=statistics.inference_count,
        execution_count=statistics.execution_count,
        inference_stats=pb.InferStatistics(**parts),
        batch_stats=[
            pb.InferBatchStatistics(batch_size=size, **_parts(compute))
            for size, compute in sorted(statistics.by_batch_size.items())
        ],
    )


def _parts(compute: ComputeDurations) -> dict[str, pb.StatisticDuration]:
    return {
        "compute_input": _duration(compute.compute_input),
        "compute_infer": _duration(compute.compute_infer),
        "compute_output": _duration(compute.compute_output),
    }


def _duration(duration: Duration) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=duration.count, ns=duration.ns)
