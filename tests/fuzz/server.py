"""A whole server on its own thread, and one call after the other on raw bytes."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from service.api.calls import INTERNAL_ERROR
from service.rpc.status import UNREADABLE
from tests.fakes.every_task import every_session, write_every_model
from tests.fakes.serving import Served, serving, simple_request
from tests.fuzz.messages import MODELS, Method

TIMEOUT_S = 20.0
WATCH_S = 0.05  # of a method that ends when its client leaves
NEVER = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS)


class Target:
    """The server under fire."""

    def __init__(self, served: Served, channel: grpc.Channel) -> None:
        self.served = served
        self._channel: Any = channel  # of bytes, which its types do not know
        self._inference: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def send(self, method: Method, *messages: bytes) -> None:
        """Call a method; a status that tells of a bug is an error here."""
        is_watch = method.descriptor.name == "Watch"
        timeout_s = WATCH_S if is_watch else TIMEOUT_S
        try:
            if method.descriptor.client_streaming:
                call = self._channel.stream_stream(method.path)
                for response in call(iter(messages), timeout=timeout_s):
                    answer = pb.ModelStreamInferResponse.FromString(response)
                    assert answer.error_message != INTERNAL_ERROR
            elif method.descriptor.server_streaming:
                for _ in self._channel.unary_stream(method.path)(messages[0], timeout=timeout_s):
                    pass
            else:
                self._channel.unary_unary(method.path)(messages[0], timeout=timeout_s)
        except grpc.RpcError as error:
            code, text = error.code(), error.details() or ""
            assert code not in NEVER, (code, text)
            assert text != INTERNAL_ERROR, method.name
            assert is_watch or code is not grpc.StatusCode.DEADLINE_EXCEEDED, method.name
            assert code is not grpc.StatusCode.INTERNAL or _is_meant(text), (method.name, text)

    def check(self) -> None:
        """It lives, nothing is left inside, and it still computes rightly."""
        assert self._inference.ServerLive(pb.ServerLiveRequest(), timeout=TIMEOUT_S).live
        for name in MODELS:
            load = pb.RepositoryModelLoadRequest(model_name=name)
            self._inference.RepositoryModelLoad(load, timeout=TIMEOUT_S)
        response = self._inference.ModelInfer(simple_request(), timeout=TIMEOUT_S)
        total = np.frombuffer(response.raw_output_contents[0], "<i4")
        assert total.tolist() == [5] * 16
        for name in MODELS:
            assert not self.served.num_waiting(name)
            assert not self.served.num_running(name)


def _is_meant(text: str) -> bool:
    """INTERNAL is Triton's word for these."""
    meant = (UNREADABLE, "failed to load", "Unable to open shared memory region")
    return any(known in text for known in meant)


@contextmanager
def target(repository: Path) -> Iterator[Target]:
    """Everything open that can be opened: model control and shared memory."""
    write_every_model(repository)
    loop = asyncio.new_event_loop()
    started: asyncio.Future[Served] = loop.create_future()
    over = asyncio.Event()

    async def run() -> None:
        settings = {"model_control_mode": "explicit", "load_models": "*", "allow_client_shm": True}
        async with serving(repository, every_session(), **settings) as served:
            started.set_result(served)
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        served = asyncio.run_coroutine_threadsafe(_result(started), loop).result(TIMEOUT_S)
        with grpc.insecure_channel(served.address) as channel:
            yield Target(served, channel)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


async def _result(future: "asyncio.Future[Served]") -> Served:
    return await future
