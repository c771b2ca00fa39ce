"""A small synchronous client of the typed API, for the command line and for trying models."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from attendant.v1 import text_pb2 as pb
from attendant.v1 import text_pb2_grpc

MAX_MESSAGE_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Trial:
    """One model asked one example."""

    model: pb.Model
    answer: str
    latency_s: float


class TextClient:
    """Calls one server; every method raises `grpc.RpcError` where the server refuses."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        )
        self._stub: Any = text_pb2_grpc.TextServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()

    def list_models(self) -> pb.ListModelsResponse:
        response: pb.ListModelsResponse = self._stub.ListModels(
            pb.ListModelsRequest(), timeout=self._timeout_s
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
        response: pb.ClassifyResponse = self._stub.Classify(request, timeout=self._timeout_s)
        return response

    def embed(
        self, model: str, texts: Sequence[str], *, version: str = "", truncate: bool = False
    ) -> pb.EmbedResponse:
        request = pb.EmbedRequest(model=model, version=version, texts=texts, truncate=truncate)
        response: pb.EmbedResponse = self._stub.Embed(request, timeout=self._timeout_s)
        return response

    def try_models(self) -> Iterator[Trial]:
        """Ask every text model its own example."""
        for model in self.list_models().models:
            if not model.example:
                continue
            started_s = time.monotonic()
            try:
                answer = self._try(model)
            except grpc.RpcError as error:
                answer = f"{error.code().name}: {error.details()}"
            yield Trial(model, answer, time.monotonic() - started_s)

    def _try(self, model: pb.Model) -> str:
        if model.task == "embedding":
            values = (
                self.embed(model.name, [model.example], version=model.version).results[0].values
            )
            start = ", ".join(f"{value:.3f}" for value in values[:3])
            return f"{len(values)} values: {start}, …"
        found = self.classify(model.name, [model.example], version=model.version, top_k=1)
        best = found.results[0].labels[0]
        return f"{best.label} ({best.score:.3f})"
