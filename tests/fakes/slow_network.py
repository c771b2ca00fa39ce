"""A network that stalls, and a model with large answers to send through it."""

import asyncio
from contextlib import suppress

import numpy as np
from tritonclient.grpc import service_pb2

from service.contract.tensors import Signature
from tests.fakes.sessions import FakeSession, spec

UNLIMITED = [("grpc.max_receive_message_length", -1)]


class SlowNetwork:
    """A connection to the server; what the server sends passes only while `can_pass` is set."""

    def __init__(self, server_port: int) -> None:
        self.can_pass = asyncio.Event()
        self._server_port = server_port

    async def __aenter__(self) -> int:
        """The port for the client."""
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _connect(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        server, forth = await asyncio.open_connection("127.0.0.1", self._server_port)
        open_gate = asyncio.Event()
        open_gate.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pass(client, forth, open_gate))
            group.create_task(self._pass(server, back, self.can_pass))

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await source.read(65_536):
                await gate.wait()
                sink.write(chunk)
                await sink.drain()
        sink.close()


def wide_session() -> FakeSession:
    """One number in, 16 MiB of it out."""
    signature = Signature((spec("x", "FP32", -1, 1),), (spec("y", "FP32", -1, -1),))
    return FakeSession(signature, lambda inputs: {"y": np.repeat(inputs["x"], 2**22, axis=1)})


def wide_request(value: int) -> service_pb2.ModelInferRequest:
    request = service_pb2.ModelInferRequest(model_name="wide")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    request.raw_input_contents.append(np.array([value], "<f4").tobytes())
    return request
