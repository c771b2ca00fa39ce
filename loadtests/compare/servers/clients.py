"""Clients of one text to its vector: through the Open Inference Protocol, and as JSON over HTTP.

Both are as light as can be, since they share the processors with the server that they measure.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.load.connections import Connections, post
from service.contract.tensors import to_raw

MODEL = "model"  # its name at every server


class Client(ABC):
    """One server's client; lives on one event loop."""

    @abstractmethod
    async def ask(self, text: str) -> list[float]:
        """The vector of a text, or an error."""

    @abstractmethod
    def rest(self) -> None:
        """Keep nothing open that a server would close while others have their turn."""


class OipClient(Client):
    """gRPC, one connection: a tensor `text` of BYTES in, `embedding` out."""

    def __init__(
        self, port: int, metadata: Sequence[tuple[str, str]] = (), *, can_truncate: bool = False
    ) -> None:
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self._infer: Any = service_pb2_grpc.GRPCInferenceServiceStub(self._channel).ModelInfer
        self._metadata = metadata
        truncate = service_pb2.InferParameter(bool_param=True)
        self._parameters = {"truncate": truncate} if can_truncate else {}

    async def ask(self, text: str) -> list[float]:
        request = service_pb2.ModelInferRequest(
            model_name=MODEL,
            inputs=[{"name": "text", "datatype": "BYTES", "shape": [1, 1]}],
            outputs=[{"name": "embedding"}],
            raw_input_contents=[to_raw(np.array([text.encode()], object))],
            parameters=self._parameters,
        )
        response = await self._infer(request, metadata=self._metadata)
        return vector_of(response)

    def rest(self) -> None: ...


def vector_of(response: Any) -> list[float]:
    """Raw or typed, as the protocol leaves open."""
    if response.raw_output_contents:
        return [float(value) for value in np.frombuffer(response.raw_output_contents[0], "<f4")]
    return list(response.outputs[0].contents.fp32_contents)


class HttpClient(Client):
    """HTTP/1.1, a connection kept for every request in flight."""

    def __init__(
        self, port: int, path: str, body: Callable[[str], object], vector: Callable[[Any], Any]
    ) -> None:
        self._connections = Connections(port)
        self._path = path
        self._body = body
        self._vector = vector

    async def ask(self, text: str) -> list[float]:
        response = await self._connections.ask(post(self._path, self._body(text)))
        if response.status != 200:
            self.rest()
            raise RuntimeError(f"HTTP {response.status}: {response.body[:200]!r}")
        return [float(value) for value in self._vector(json.loads(response.body))]

    def rest(self) -> None:
        self._connections.close()
