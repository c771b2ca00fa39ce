"""A small synchronous client of the typed API, for the command line and for trying models."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import grpc
from attendant.v1 import (
    features_pb2,
    features_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    reading_pb2,
    reading_pb2_grpc,
    text_pb2_grpc,
    vision_pb2,
    vision_pb2_grpc,
)
from attendant.v1 import text_pb2 as pb

from commands.ask.access import NO_ACCESS, Access, open_channel

MAX_MESSAGE_BYTES = 2**31 - 1
TRIAL_TOKENS = 24  # of output, when a generative model is tried


@dataclass(frozen=True, slots=True)
class Trial:
    """One model's answer to its example."""

    model: pb.Model
    answer: str
    latency_s: float


class Client:
    """A channel to one server; every method raises `grpc.RpcError` where the server refuses."""

    def __init__(self, address: str, timeout_s: float, access: Access = NO_ACCESS) -> None:
        authorization = (("authorization", f"Bearer {access.token}"),) if access.token else ()
        self._options: dict[str, Any] = {"timeout": timeout_s, "metadata": authorization}
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)
        ]
        self._channel = open_channel(address, access, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()


class TextClient(Client):
    """Asks text models, and what models there are."""

    def __init__(self, address: str, timeout_s: float, access: Access = NO_ACCESS) -> None:
        super().__init__(address, timeout_s, access)
        self._stub: Any = text_pb2_grpc.TextServiceStub(self._channel)

    def list_models(self) -> pb.ListModelsResponse:
        response: pb.ListModelsResponse = self._stub.ListModels(
            pb.ListModelsRequest(), **self._options
        )
        return response

    def classify(
        self,
        model: str,
        texts: Sequence[str],
        *,
        version: str = "",
        top_k: int = 0,
        truncate: bool = False,
    ) -> pb.ClassifyResponse:
        """The `top_k` best labels of each text, all of them for 0."""
        request = pb.ClassifyRequest(
            model=model,
            version=version,
            texts=texts,
            truncate=truncate,
            top_k=top_k,
            all_scores=not top_k,
        )
        response: pb.ClassifyResponse = self._stub.Classify(request, **self._options)
        return response

    def embed(
        self, model: str, texts: Sequence[str], *, version: str = "", truncate: bool = False
    ) -> pb.EmbedResponse:
        request = pb.EmbedRequest(model=model, version=version, texts=texts, truncate=truncate)
        response: pb.EmbedResponse = self._stub.Embed(request, **self._options)
        return response


class ReadingClient(Client):
    """Asks models that read texts word by word."""

    def __init__(self, address: str, timeout_s: float, access: Access = NO_ACCESS) -> None:
        super().__init__(address, timeout_s, access)
        self._stub: Any = reading_pb2_grpc.ReadingServiceStub(self._channel)

    def fill_mask(self, request: reading_pb2.FillMaskRequest) -> reading_pb2.FillMaskResponse:
        response: reading_pb2.FillMaskResponse = self._stub.FillMask(request, **self._options)
        return response

    def classify_tokens(
        self, request: reading_pb2.ClassifyTokensRequest
    ) -> reading_pb2.ClassifyTokensResponse:
        response: reading_pb2.ClassifyTokensResponse = self._stub.ClassifyTokens(
            request, **self._options
        )
        return response

    def answer(self, request: reading_pb2.AnswerRequest) -> reading_pb2.AnswerResponse:
        response: reading_pb2.AnswerResponse = self._stub.Answer(request, **self._options)
        return response


class VisionClient(Client):
    """Asks models that look at images."""

    def __init__(self, address: str, timeout_s: float, access: Access = NO_ACCESS) -> None:
        super().__init__(address, timeout_s, access)
        self._stub: Any = vision_pb2_grpc.VisionServiceStub(self._channel)

    def classify_image(
        self, request: vision_pb2.ClassifyImageRequest
    ) -> vision_pb2.ClassifyImageResponse:
        response: vision_pb2.ClassifyImageResponse = self._stub.ClassifyImage(
            request, **self._options
        )
        return response


class FeatureClient(Client):
    """Asks what models make of texts on the way."""

    def __init__(self, address: str, timeout_s: float, access: Access = NO_ACCESS) -> None:
        super().__init__(address, timeout_s, access)
        self._stub: Any = features_pb2_grpc.FeatureServiceStub(self._channel)

    def extract(
        self,
        model: str,
        texts: Sequence[str],
        *,
        layers: str = "last",
        pooling: str = "mean",
        weights: Sequence[float] = (),
        version: str = "",
        truncate: bool = False,
    ) -> features_pb2.ExtractFeaturesResponse:
        """Vectors of texts, or with pooling "none" of their tokens; `weights` are of a "mix"."""
        request = features_pb2.ExtractFeaturesRequest(
            model=model,
            version=version,
            texts=texts,
            truncate=truncate,
            layers=f"LAYERS_{layers.upper()}",
            pooling=f"POOLING_{pooling.upper()}",
            weights=weights,
        )
        response: features_pb2.ExtractFeaturesResponse = self._stub.ExtractFeatures(
            request, **self._options
        )
        return response

    def attend(self, request: features_pb2.AttendRequest) -> features_pb2.AttendResponse:
        response: features_pb2.AttendResponse = self._stub.Attend(request, **self._options)
        return response


class GenerationClient(Client):
    """Asks generative models, for text as it comes or in one answer."""

    def __init__(self, address: str, timeout_s: float, access: Access = NO_ACCESS) -> None:
        super().__init__(address, timeout_s, access)
        self._stub: Any = generation_pb2_grpc.GenerationServiceStub(self._channel)

    def stream(
        self, request: generation_pb2.GenerateRequest
    ) -> Iterator[generation_pb2.GenerateChunk]:
        """Chunks as they come; leaving the iterator before its end ends the request."""
        call = self._stub.Generate(request, **self._options)
        try:
            yield from call
        finally:
            call.cancel()

    def generate(self, request: generation_pb2.GenerateRequest) -> generation_pb2.GenerateResponse:
        response: generation_pb2.GenerateResponse = self._stub.GenerateUnary(
            request, **self._options
        )
        return response


def try_models(address: str, timeout_s: float) -> Iterator[Trial]:
    """Ask every model that takes text its own example, where a text is all that its task needs."""
    with (
        TextClient(address, timeout_s) as text,
        ReadingClient(address, timeout_s) as reading,
        FeatureClient(address, timeout_s) as features,
        GenerationClient(address, timeout_s) as generation,
    ):
        clients = _Clients(text, reading, features, generation)
        for model in text.list_models().models:
            if not model.example or model.task not in _TRIALS:
                continue
            started_s = time.monotonic()
            try:
                answer = _TRIALS[model.task](clients, model)
            except grpc.RpcError as error:
                answer = f"{error.code().name}: {error.details()}"
            yield Trial(model, answer, time.monotonic() - started_s)


@dataclass(frozen=True, slots=True)
class _Clients:
    text: TextClient
    reading: ReadingClient
    features: FeatureClient
    generation: GenerationClient


def _generated(clients: _Clients, model: pb.Model) -> str:
    params = generation_pb2.SamplingParams(temperature=0.0, max_tokens=TRIAL_TOKENS)
    request = generation_pb2.GenerateRequest(
        model=model.name, version=model.version, text=model.example, sampling_params=params
    )
    return f"…{clients.generation.generate(request).results[0].text}"


def _embedded(clients: _Clients, model: pb.Model) -> str:
    found = clients.text.embed(model.name, [model.example], version=model.version)
    return _beginning(found.results[0].values)


def _extracted(clients: _Clients, model: pb.Model) -> str:
    found = clients.features.extract(model.name, [model.example], version=model.version)
    return _beginning(found.results[0].vectors[0].values)


def _beginning(values: Sequence[float]) -> str:
    start = ", ".join(f"{value:.3f}" for value in values[:3])
    return f"{len(values)} values: {start}, …"


def _classified(clients: _Clients, model: pb.Model) -> str:
    found = clients.text.classify(model.name, [model.example], version=model.version, top_k=1)
    best = found.results[0].labels[0]
    return f"{best.label} ({best.score:.3f})"


def _filled(clients: _Clients, model: pb.Model) -> str:
    request = reading_pb2.FillMaskRequest(
        model=model.name, version=model.version, texts=[model.example], top_k=3
    )
    mask = clients.reading.fill_mask(request).results[0].masks[0]
    return ", ".join(f"{fill.token} ({fill.score:.3f})" for fill in mask.fills)


def _tagged(clients: _Clients, model: pb.Model) -> str:
    request = reading_pb2.ClassifyTokensRequest(
        model=model.name, version=model.version, texts=[model.example]
    )
    entities = clients.reading.classify_tokens(request).results[0].entities
    return ", ".join(f"{entity.text}: {entity.label}" for entity in entities) or "no entities"


_TRIALS: dict[str, Callable[[_Clients, pb.Model], str]] = {
    "text-classification": _classified,
    "embedding": _embedded,
    "features": _extracted,
    "fill-mask": _filled,
    "token-classification": _tagged,
    "text-generation": _generated,
}
