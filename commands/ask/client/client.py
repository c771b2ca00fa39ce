"""A small synchronous client of the typed API, for the command line and for trying models."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from attendant.v1 import features_pb2, generation_pb2, reading_pb2, text_pb2, vision_pb2
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from commands.ask.client.access import NO_ACCESS, Access
from commands.ask.client.refusal import CallError
from commands.ask.client.transport import transport_to

M = TypeVar("M", bound=Message)
TRIAL_TOKENS = 24  # of output, when a generative model is tried
TRIAL_FILLS = 3  # of a mask
STREAM = "/attendant.v1.GenerationService/Generate"
# Path and response by the request's type, of all methods that give one answer.
_METHODS: dict[str, tuple[str, type[Message]]] = {
    method.input_type.full_name: (
        f"/{service.full_name}/{method.name}",
        GetMessageClass(method.output_type),
    )
    for file in (text_pb2, reading_pb2, features_pb2, vision_pb2, generation_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if not method.server_streaming
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One model's answer to its example."""

    model: text_pb2.Model
    answer: str
    latency_s: float


class Client:
    """The calls of one server, by gRPC or HTTP; each raises `CallError` where it fails."""

    def __init__(self, address: str, timeout_s: float, access: Access = NO_ACCESS) -> None:
        """Raises `SettingError`."""
        self._transport = transport_to(address, timeout_s, access)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def ask(self, request: Message) -> Any:
        """The answer of the method whose request this is."""
        return self.call(*_METHODS[request.DESCRIPTOR.full_name], request)

    def call(self, path: str, response: type[M], request: Message) -> M:
        """The answer of the operation at a path."""
        return self._transport.ask(path, request, response)

    def models(self) -> text_pb2.ListModelsResponse:
        """Models that the server offers."""
        response: text_pb2.ListModelsResponse = self.ask(text_pb2.ListModelsRequest())
        return response

    def stream(
        self, request: generation_pb2.GenerateRequest
    ) -> Generator[generation_pb2.GenerateChunk, None, None]:
        """Chunks as they come; leaving the iterator before its end ends the request."""
        yield from self._transport.stream(STREAM, request, generation_pb2.GenerateChunk)


def try_models(address: str, timeout_s: float) -> Iterator[Trial]:
    """Ask every model that takes text its own example, where a text is all that its task needs."""
    with Client(address, timeout_s) as client:
        for model in client.models().models:
            request = _example_of(model)
            if request is None:
                continue
            started_s = time.monotonic()
            try:
                answer = _shown(client.ask(request).results[0])
            except CallError as error:
                answer = str(error)
            yield Trial(model, answer, time.monotonic() - started_s)


def _example_of(model: text_pb2.Model) -> Message | None:
    """The request that asks a model its example; None where that is no example of its task."""
    from service.calls.record import abouts, counted
    from service.serving.tasks.table import METHODS  # numpy and tokenizers, which few commands need

    if not model.example:
        return None
    if model.task == "text-generation":
        params = generation_pb2.SamplingParams(temperature=0.0, max_tokens=TRIAL_TOKENS)
        return generation_pb2.GenerateRequest(
            model=model.name, version=model.version, text=model.example, sampling_params=params
        )
    for method in METHODS.values():
        if (
            method.task.name == model.task
            and counted(method.call) == ("texts",)
            and not any("paired" in each.says for each in abouts(method.call))
        ):
            request: Any = _request_types()[method.name]
            example: Message = request(
                model=model.name, version=model.version, texts=[model.example]
            )
            return example
    return None


def _request_types() -> dict[str, type[Message]]:
    """By the names of their methods."""
    return {
        method.name: GetMessageClass(method.input_type)
        for file in (text_pb2, reading_pb2, features_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def _shown(result: Any) -> str:
    """The result of one text in a line."""
    fields = result.DESCRIPTOR.fields_by_name
    return next(show(result) for name, show in _SHOWN.items() if name in fields)


def _beginning(values: Sequence[float]) -> str:
    start = ", ".join(f"{value:.3f}" for value in values[:3])
    return f"{len(values)} values: {start}, …"


def _fills(result: Any) -> str:
    fills = result.masks[0].fills[:TRIAL_FILLS]
    return ", ".join(f"{fill.token} ({fill.score:.3f})" for fill in fills)


def _entities(result: Any) -> str:
    found = ", ".join(f"{entity.text}: {entity.label}" for entity in result.entities)
    return found or "no entities"


_SHOWN: dict[str, Callable[[Any], str]] = {  # by a field that results of a method have
    "labels": lambda result: f"{result.labels[0].label} ({result.labels[0].score:.3f})",
    "values": lambda result: _beginning(result.values),
    "vectors": lambda result: _beginning(result.vectors[0].values),
    "masks": _fills,
    "entities": _entities,
    "text": lambda result: f"…{result.text}",
}
