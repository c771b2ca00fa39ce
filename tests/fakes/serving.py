"""A whole server in this process: real ports, real clients, fake sessions."""

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import grpc
import numpy as np
from attendant.v1 import generation_pb2_grpc, text_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from service.api.regions import SharedMemoryRegions, Transfer
from service.app import App
from service.contract.tensors import strings_from_raw
from service.repository.loading import Openers
from service.repository.placement import ChooseDevice
from service.runtime.session import SessionOptions, choose_device
from service.settings import Settings
from tests.fakes.sessions import (
    PATIENCE_S,
    FakeDecoders,
    FakeSession,
    FakeSessions,
    classifier_manifest,
    doubling_session,
    embedder_manifest,
    generator_manifest,
    simple_session,
    strings_session,
    text_session,
    write_model,
)

T = TypeVar("T")
NO_SHARING = Transfer(
    SharedMemoryRegions(is_allowed=False, max_regions=1, max_bytes=1), max_message_bytes=2**20
)


@dataclass(frozen=True, slots=True)
class Served:
    """A running server, its sessions, and a channel with stubs for its services."""

    app: App
    sessions: FakeSessions
    decoders: FakeDecoders
    channel: grpc.aio.Channel
    inference: Any
    text: Any
    generation: Any

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.app.grpc_port}"

    def num_waiting(self, model: str) -> int:
        return self.app.repository.find(model)._engine.num_waiting

    def num_running(self, model: str) -> int:
        return self.app.repository.find(model)._engine.num_running

    def has_clients(self, model: str) -> bool:
        """Whether a caller waits for an answer; one that left is gone before its step ends."""
        engine: Any = self.app.repository.find(model)._engine
        return bool(engine._crossing.clients)

    async def hold(self, model: str) -> "asyncio.Task[Any]":
        """Keep a model's only session busy with one request, until `release`."""
        session = self.sessions[model]
        session.hold()
        num_runs = len(session.batches)
        call = asyncio.create_task(self.infer_text(model, "lunch"))
        await asyncio.to_thread(session.wait_for_runs, num_runs + 1)
        return call

    def forget(self) -> None:
        """Let every session forget what it saw, between two tests."""
        for fake in (*self.sessions, *self.decoders):
            fake.release()
            fake.calls.clear()
            fake.error = None

    def release(self, model: str) -> None:
        self.sessions[model].release()

    async def infer_text(self, model: str, *texts: str, **options: Any) -> Any:
        options.setdefault("timeout", PATIENCE_S)
        return await self.inference.ModelInfer(text_request(model, *texts), **options)


def text_request(model: str, *texts: str) -> pb.ModelInferRequest:
    """What tritonclient sends for a BYTES tensor [n, 1], as typed contents."""
    return inference(model, text=texts)


def inference(model: str, **inputs: Sequence[str]) -> pb.ModelInferRequest:
    """Inputs of strings, one in each row."""
    request = pb.ModelInferRequest(model_name=model)
    for name, texts in inputs.items():
        add_strings(request, name, *texts)
        request.inputs[-1].shape.append(1)
    return request


def add_strings(request: pb.ModelInferRequest, name: str, *values: str) -> None:
    """An input of these strings, in one dimension."""
    tensor = request.inputs.add(name=name, datatype="BYTES", shape=[len(values)])
    tensor.contents.bytes_contents.extend(value.encode() for value in values)


def strings_of(response: pb.ModelInferResponse) -> list[str]:
    """The strings of the only output, whatever its shape."""
    (output,), (raw,) = response.outputs, response.raw_output_contents
    count = math.prod(output.shape)
    return [part.decode() for part in strings_from_raw(raw, count, output.name, "the model")]


def simple_request(num_rows: int = 1) -> pb.ModelInferRequest:
    """Two INT32 inputs of 16 for model `simple`: 3 and 2 everywhere."""
    request = pb.ModelInferRequest(model_name="simple")
    for name, value in (("INPUT0", 3), ("INPUT1", 2)):
        request.inputs.add(name=name, datatype="INT32", shape=[num_rows, 16])
        request.raw_input_contents.append(np.full((num_rows, 16), value, "<i4").tobytes())
    return request


def write_models(repository: Path) -> None:
    """`spam` classifies, `mini` embeds, `simple` adds and subtracts, `strings` echoes.

    `tale` generates; its context is 64 tokens.
    """
    write_model(repository, "spam", classifier_manifest())
    write_model(repository, "mini", embedder_manifest(pooling="mean, normalised", origin="here"))
    write_model(repository, "simple", config="max_batch_size: 8")
    write_model(repository, "strings")
    write_model(repository, "tale", generator_manifest(origin="nowhere"))


def default_sessions() -> FakeSessions:
    return FakeSessions(
        spam=lambda: text_session("logits", 3),
        mini=lambda: text_session("embedding", 4),
        simple=simple_session,
        strings=strings_session,
    )


def make_app(
    repository: Path,
    sessions: Callable[..., FakeSession],
    settings: dict[str, Any],
    decoders: FakeDecoders | None = None,
    choose_device: ChooseDevice = choose_device,
) -> App:
    ports = {"grpc_port": 0, "http_port": -1, "metrics_port": 0}
    # So that a held run holds the model, and sessions see what tests ask only.
    one_at_a_time = {"instances": 1, "measure_cost_s": 0.0}
    values = ports | one_at_a_time | settings
    openers = Openers(sessions, decoders or FakeDecoders(), choose_device=choose_device)
    return App(Settings(model_repository=repository, **values), openers)


@asynccontextmanager
async def serving(
    repository: Path,
    sessions: FakeSessions | None = None,
    choose_device: ChooseDevice = choose_device,
    /,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Start a server; on leaving, release what was held and stop it unless it is stopped."""
    sessions = sessions or default_sessions()
    decoders = FakeDecoders()
    app = make_app(repository, sessions, settings, decoders, choose_device)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{app.grpc_port}") as channel:
        await within_patience(app.start())
        try:
            yield Served(
                app,
                sessions,
                decoders,
                channel,
                service_pb2_grpc.GRPCInferenceServiceStub(channel),
                text_pb2_grpc.TextServiceStub(channel),
                generation_pb2_grpc.GenerationServiceStub(channel),
            )
        finally:
            for fake in (*sessions, *decoders):
                fake.release()
            if not app._admission.is_draining:
                await within_patience(app.stop())


async def within_patience(awaitable: Awaitable[T]) -> T:
    return await asyncio.wait_for(awaitable, PATIENCE_S)


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for what a server does on its own account, where no event tells of it."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, "it never happened"
        await asyncio.sleep(0.001)


def num_runs(served: Served, model: str) -> int:
    """How many batches or steps of a model are counted."""
    with served.app.repository.find(model).statistics() as statistics:
        return statistics.execution_count


async def refusal(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """The status code and the text that a call ends with."""
    try:
        await within_patience(call)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError("the call succeeded")


async def refused_calls(served: Served) -> dict[str, float]:
    """What the page of metrics says of refused calls, by the bound that was reached, if any was."""
    families = text_string_to_metric_families(await metrics_page(served.app))
    return {
        sample.labels["bound"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "attendant_calls_refused_total" and sample.value
    }


def echo_request(num_bytes: int) -> pb.ModelInferRequest:
    """About so large, and as large an answer."""
    request = pb.ModelInferRequest(model_name="strings")
    request.inputs.add(name="IN", datatype="BYTES", shape=[1, 1])
    request.inputs[0].contents.bytes_contents.append(b"x" * num_bytes)
    return request


async def metrics_page(app: App) -> str:
    """The page of metrics, as Prometheus reads it."""

    def read() -> str:
        with urlopen(f"http://127.0.0.1:{app.metrics_port}/metrics", timeout=PATIENCE_S) as page:
            return str(page.read().decode())

    return await asyncio.to_thread(read)


async def check_health(channel: grpc.aio.Channel, name: str = "") -> int:
    """The status of a model or service by its name, or of the whole server."""
    request = health_pb2.HealthCheckRequest(service=name)
    response = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE_S)
    return int(response.status)


class Watcher:
    """A client that watches the health of one name."""

    def __init__(self, channel: grpc.aio.Channel, name: str) -> None:
        self.call = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=name)
        )

    async def next(self) -> int:
        return int((await within_patience(self.call.read())).status)


class SlowOpening:
    """Opens sessions once it is allowed to."""

    def __init__(self) -> None:
        self.may_open = threading.Event()

    def __call__(self, path: Path, options: SessionOptions) -> FakeSession:
        assert self.may_open.wait(PATIENCE_S)
        return doubling_session()
