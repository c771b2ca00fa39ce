"""What is left of requests once they have ended, without help from the garbage collector."""

import gzip
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import text_pb2, text_pb2_grpc
from onnx import TensorProto, helper, numpy_helper
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from tests.e2e.calls import LIMIT_S
from tests.e2e.graphs import model_of, slow_identity, tensor, write_graph, write_slow_text
from tests.e2e.large_messages import IDENTITY, beside
from tests.e2e.server import ServerProcess, eventually
from tests.e2e.soak import Memory

MESSAGE_BYTES = 40 * 10**6
ROUNDS = 5
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# The garbage collector off: no message may wait for it.
SERVE = "import gc; gc.disable(); from commands.main import app; app()"
NO_COLLECTION = (sys.executable, "-c", SERVE, "serve")
INFER = "/inference.GRPCInferenceService/ModelInfer"


def identity() -> Any:
    shape = ["rows", "columns"]
    node = helper.make_node("Identity", ["x"], ["y"])
    return model_of(
        [node], [tensor("x", TensorProto.FLOAT, shape)], [tensor("y", TensorProto.FLOAT, shape)]
    )


def failing() -> Any:
    """Takes a column that there is not."""
    node = helper.make_node("Gather", ["x", "column"], ["y"], axis=1)
    shape = ["rows", "columns"]
    return model_of(
        [node],
        [tensor("x", TensorProto.FLOAT, shape)],
        [tensor("y", TensorProto.FLOAT, ["rows", 1])],
        [numpy_helper.from_array(np.array([10**9]), "column")],
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose garbage collector never runs."""
    folder = tmp_path_factory.mktemp("payloads")
    write_graph(identity(), folder, "same")
    write_graph(failing(), folder, "failing")
    write_graph(slow_identity(2_000), folder, "slow")
    write_slow_text(folder, 1)
    with ServerProcess(folder, command=NO_COLLECTION) as process:
        yield process


class Client:
    """Calls with large messages, and how each ends."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        self.text = text_pb2_grpc.TextServiceStub(channel)
        self._raw: Any = channel.unary_unary(INFER)
        self._zipped = b""

    async def answered(self) -> None:
        reply = await self.stub.ModelInfer(large(), timeout=LIMIT_S)
        assert len(reply.raw_output_contents[0]) == MESSAGE_BYTES

    async def streamed(self) -> None:
        await self._stream(large(), "")

    async def wrong_type(self) -> None:
        request = large()
        request.inputs[0].datatype = "FP64"
        await self._refused(request, grpc.StatusCode.INVALID_ARGUMENT)

    async def unknown_model(self) -> None:
        await self._refused(large("nobody"), grpc.StatusCode.NOT_FOUND)

    async def unreadable(self) -> None:
        await self._refused(b"\xff" * MESSAGE_BYTES, grpc.StatusCode.INTERNAL)

    async def too_many_parts(self) -> None:
        await self._refused(b"\x2a\x00" * (MESSAGE_BYTES // 2), grpc.StatusCode.INVALID_ARGUMENT)

    async def failed(self) -> None:
        await self._refused(large("failing"), grpc.StatusCode.INTERNAL)

    async def failed_in_a_stream(self) -> None:
        await self._stream(large("failing"), "indices element out of data bounds")

    async def refused_in_a_stream(self) -> None:
        await self._stream(large("nobody"), "unknown model")

    async def late(self) -> None:
        request = large("slow", "INPUT0", np.zeros((1, MESSAGE_BYTES // 4), np.int32))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await self.stub.ModelInfer(request, timeout=0.2)
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async def too_long_a_text(self) -> None:
        request = text_pb2.ClassifyRequest(model="slow-text", texts=["a " * (MESSAGE_BYTES // 2)])
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await self.text.Classify(request, timeout=LIMIT_S)
        assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    async def _refused(self, request: Any, code: grpc.StatusCode) -> None:
        """As a hostile client may send it: some kilobytes, a thousand times as much here."""
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        self._zipped = self._zipped or gzip.compress(raw, 1)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await self._raw(self._zipped, timeout=LIMIT_S)
        assert ended.value.code() is code, ended.value.details()

    async def _stream(self, request: Any, error: str) -> None:
        call = self.stub.ModelStreamInfer(iter([request]), timeout=LIMIT_S)
        (answer,) = [each async for each in call]
        assert error in answer.error_message
        assert bool(error) == bool(answer.error_message), answer.error_message


def large(model: str = "same", name: str = "x", array: np.ndarray | None = None) -> Any:
    array = np.zeros((1, MESSAGE_BYTES // 4), np.float32) if array is None else array
    datatype = {"f": "FP32", "i": f"INT{8 * array.itemsize}"}[array.dtype.kind]
    request = pb.ModelInferRequest(model_name=model)
    request.inputs.add(name=name, datatype=datatype, shape=array.shape)
    request.raw_input_contents.append(array.tobytes())
    return request


CALLS: list[Callable[[Client], Awaitable[None]]] = [
    Client.answered,
    Client.streamed,
    Client.wrong_type,
    Client.unknown_model,
    Client.unreadable,
    Client.too_many_parts,
    Client.failed,
    Client.failed_in_a_stream,
    Client.refused_in_a_stream,
    Client.late,
    Client.too_long_a_text,
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
async def test_no_message_outlives_its_call(
    server: ServerProcess, call: Callable[[Client], Awaitable[None]]
) -> None:
    """The collector off, of 5 messages of 40 MB less than 3 are there when they have ended."""
    async with grpc.aio.insecure_channel(server.address, UNLIMITED) as channel:
        client, memory = Client(channel), Memory(server.process.pid)
        for _ in range(2):
            await call(client)  # pools reach their size
        memory.sample(0)
        for _ in range(ROUNDS):
            await call(client)
    most = memory.samples[0][1] + 3 * MESSAGE_BYTES / 2**20

    def is_little() -> bool:
        memory.sample(ROUNDS)
        return memory.samples[-1][1] < most

    eventually(is_little, f"{server.process.pid} has less than {most:.0f} MiB", limit_s=5)


def test_small_calls_do_not_wait_for_large_answers(tmp_path: Path) -> None:
    """Half of them are answered between two messages of 40 MB, of which 8 are under way."""
    write_graph(identity(), tmp_path, IDENTITY)
    with ServerProcess(tmp_path) as process:
        waits = beside(process.address, clients=8, megabytes=40, seconds=5)
    for call, waits_ms in waits.items():
        assert np.median(waits_ms) < 300, (call, sorted(waits_ms))
