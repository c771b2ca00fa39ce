"""The requests of load tests: one `Workload` per kind of traffic, made beforehand.

Retries are off in every channel: a request is sent once, and what comes of it is what is counted.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from attendant.v1 import generation_pb2, generation_pb2_grpc, text_pb2, text_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.load.scenario import Scenario, Traffic
from service.contract.tensors import DATATYPES, to_raw

NUM_REQUESTS = 256  # made beforehand per kind, and sent in turn
OK = "OK"
LEFT = "LEFT"  # the client cancelled, as the scenario wants
WRONG = "WRONG"  # an answer, but to another question
FAILED = "FAILED"  # an error of the client itself
# A client that balances watches health, and leaves a replica that will end.
ROUND_ROBIN = (
    '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}'
)
CHANNEL_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.enable_retries", 0),
    ("grpc.service_config", ROUND_ROBIN),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.max_receive_message_length", -1),
)


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a request. Times are `time.monotonic()`, or the event loop's."""

    status: str  # OK, LEFT, WRONG, FAILED, or the name of a gRPC status
    chunks: Sequence[tuple[float, int]] = ()  # when tokens came, and how many


class Stubs:
    """The services of one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.text: Any = text_pb2_grpc.TextServiceStub(channel)
        self.generation: Any = generation_pb2_grpc.GenerationServiceStub(channel)
        self.inference: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)


def open_channel(addresses: Sequence[str]) -> grpc.aio.Channel:
    """A channel that balances over all addresses that are in good health."""
    is_named = len(addresses) == 1
    target = addresses[0] if is_named else f"ipv4:{','.join(addresses)}"
    return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)


class Workload(ABC):
    """Requests of one kind of traffic."""

    def __init__(self, traffic: Traffic, seed: int) -> None:
        self.traffic = traffic
        self._generator = random.Random(seed)
        self._lengths = traffic.text_lengths
        self._requests: list[Any] = []
        self._num_sent = 0

    async def prepare(self, stubs: Stubs) -> None:  # noqa: ARG002
        """Make the requests; tensors ask the model for its inputs."""
        self._requests = [self._request(number) for number in range(NUM_REQUESTS)]

    async def ask(self, stubs: Stubs) -> Reply:
        """Send the next request and wait for its end."""
        request = self._requests[self._num_sent % NUM_REQUESTS]
        self._num_sent += 1
        leaves = self._generator.random() < self.traffic.leave_share
        call = self._call(stubs, request)
        if leaves:
            loop = asyncio.get_running_loop()
            leaving = loop.call_later(self.traffic.leave_after_ms / 1e3, call.cancel)
        try:
            return await self._reply(call, request)
        except grpc.aio.AioRpcError as error:
            status = error.code().name
            return Reply(LEFT if leaves and status == "CANCELLED" else status)
        except asyncio.CancelledError:
            if not leaves or not call.cancelled():
                raise
            return Reply(LEFT)
        except Exception:
            return Reply(FAILED)
        finally:
            if leaves:
                leaving.cancel()

    def _text(self) -> str:
        return self._lengths.text(self._generator)

    @abstractmethod
    def _request(self, number: int) -> Any: ...

    @abstractmethod
    def _call(self, stubs: Stubs, request: Any) -> Any: ...

    @abstractmethod
    async def _reply(self, call: Any, request: Any) -> Reply: ...


class Classify(Workload):
    """Texts to labels."""

    method: str = "Classify"
    request_type: Any = text_pb2.ClassifyRequest

    def _request(self, number: int) -> Any:  # noqa: ARG002
        texts = [self._text() for _ in range(self.traffic.rows)]
        return self.request_type(model=self.traffic.model, texts=texts, truncate=True)

    def _call(self, stubs: Stubs, request: Any) -> Any:
        return getattr(stubs.text, self.method)(request, timeout=self.traffic.deadline_s)

    async def _reply(self, call: Any, request: Any) -> Reply:
        response = await call
        return Reply(OK if len(response.results) == len(request.texts) else WRONG)


class Embed(Classify):
    """Texts to vectors."""

    method = "Embed"
    request_type = text_pb2.EmbedRequest


class Generate(Workload):
    """A prompt to a stream of tokens, as many as requested."""

    def _request(self, number: int) -> Any:
        params = generation_pb2.SamplingParams(
            max_tokens=self._generator.randint(*self.traffic.max_tokens),
            ignore_eos=True,
            seed=number,
        )
        return generation_pb2.GenerateRequest(
            model=self.traffic.model, text=self._text(), sampling_params=params
        )

    def _call(self, stubs: Stubs, request: Any) -> Any:
        return stubs.generation.Generate(request, timeout=self.traffic.deadline_s)

    async def _reply(self, call: Any, request: Any) -> Reply:
        now_s = asyncio.get_running_loop().time
        chunks: list[tuple[float, int]] = []
        while (chunk := await call.read()) is not grpc.aio.EOF:
            if chunk.token_ids:
                chunks.append((now_s(), len(chunk.token_ids)))
            if self.traffic.read_pause_ms:
                await asyncio.sleep(self.traffic.read_pause_ms / 1e3)
        code = await call.code()
        if code is not grpc.StatusCode.OK:
            return Reply(code.name, chunks)
        num_tokens = sum(count for _, count in chunks)
        is_whole = num_tokens == request.sampling_params.max_tokens
        return Reply(OK if is_whole else WRONG, chunks)


class Infer(Workload):
    """Zeros for every input of a tensor model, and the request's id back."""

    async def prepare(self, stubs: Stubs) -> None:
        request = service_pb2.ModelMetadataRequest(name=self.traffic.model)
        self._inputs = (await stubs.inference.ModelMetadata(request, timeout=10)).inputs
        await super().prepare(stubs)

    def _request(self, number: int) -> Any:
        request = service_pb2.ModelInferRequest(model_name=self.traffic.model, id=str(number))
        for tensor in self._inputs:
            first, *others = tensor.shape
            sizes = [size if size > 0 else self.traffic.size for size in others]
            shape = [self.traffic.rows if first < 0 else first, *sizes]
            request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=shape)
            nothing = np.full(shape, b"" if tensor.datatype == "BYTES" else 0)
            dtype = DATATYPES[tensor.datatype].dtype
            request.raw_input_contents.append(to_raw(nothing.astype(dtype)))
        return request

    def _call(self, stubs: Stubs, request: Any) -> Any:
        return stubs.inference.ModelInfer(request, timeout=self.traffic.deadline_s)

    async def _reply(self, call: Any, request: Any) -> Reply:
        response = await call
        return Reply(OK if response.id == request.id else WRONG)


KINDS: dict[str, type[Workload]] = {
    "classify": Classify,
    "embed": Embed,
    "generate": Generate,
    "infer": Infer,
}


async def workloads_of(
    scenario: Scenario,
    stubs: Stubs,
    seed: int,
) -> list[Workload]:
    """One per kind of traffic, ready to ask."""
    workloads = [KINDS[traffic.kind](traffic, seed) for traffic in scenario.traffic]
    for workload in workloads:
        await workload.prepare(stubs)
    return workloads
