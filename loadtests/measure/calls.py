"""Requests of each protocol, and sending them in a closed loop: what a turn of a server is.

Each way has its own connections, as many as requests are in flight; gRPC's clients share one. The
processor's time of the server is what counts on a machine with other work; latencies are the
client's, whose own work is part of them.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import grpc
import numpy as np
from attendant.v1 import generation_pb2, generation_pb2_grpc, text_pb2, text_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.load.closed_loop import closed_loop
from loadtests.load.connections import Connections, post
from loadtests.load.server import Server
from loadtests.measure.records import Turn, percentiles
from service.contract.tensors import to_raw

SUMS = "sums"
NUM_TOKENS = 32  # of a generation
TIMEOUT_S = 60.0


@dataclass(slots=True)
class Seen:
    """What the clients of one turn saw."""

    latencies_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)  # between two messages of a stream

    async def ask(self, call: Callable[[Any], Awaitable[Any]], request: object) -> None:
        """One request; a stream's call gives the moments of its messages."""
        started_s = time.perf_counter()
        came_s = await call(request)
        self.latencies_s.append(time.perf_counter() - started_s)
        if isinstance(came_s, list):
            self.gaps_s += np.diff(came_s[:NUM_TOKENS]).tolist()


Send: TypeAlias = Callable[[Server, Sequence[Any], int, Seen], Coroutine[Any, Any, float]]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How requests are sent, in seconds, and what a request for texts of a model is."""

    send: Send
    request: Callable[[str, Sequence[str]], Any]


def turn_of(server: Server, send: Send, requests: Sequence[Any], concurrency: int) -> Turn:
    """One turn: seconds, microseconds of processor time per request, and latencies."""
    seen = Seen()
    server_s, client_s = cpu_s(server), time.process_time()
    seconds = asyncio.run(send(server, requests, concurrency, seen))
    per_request_us = 1e6 / len(requests)
    turn = {
        "seconds": seconds,
        "requests": len(requests),
        "client_us": (time.process_time() - client_s) * per_request_us,
        "server_us": (cpu_s(server) - server_s) * per_request_us,
        **percentiles(seen.latencies_s, "latency_"),
    }
    if seen.gaps_s:
        turn |= {"tokens": NUM_TOKENS * len(requests), **percentiles(seen.gaps_s, "gap_")}
    return turn


def cpu_s(server: Server) -> float:
    """Processor time of a server so far: its clock, as clock_getcpuclockid(3) numbers it."""
    return time.clock_gettime((~server.process_id << 3) | 2)


async def _by_grpc(
    method: Callable[[grpc.aio.Channel], Callable[[Any], Awaitable[Any]]],
    server: Server,
    requests: Sequence[Any],
    concurrency: int,
    seen: Seen,
) -> float:
    async with grpc.aio.insecure_channel(server.address) as channel:
        return await closed_loop(requests, concurrency, partial(seen.ask, method(channel)))


async def _by_http(
    server: Server, requests: Sequence[bytes], concurrency: int, seen: Seen
) -> float:
    connections = Connections(int(server.http_address.rpartition(":")[2]))
    await connections.open(concurrency)

    async def call(request: bytes) -> list[float]:
        response = await connections.ask(request)
        assert response.status == 200, response
        return response.events_s

    seconds = await closed_loop(requests, concurrency, partial(seen.ask, call))
    connections.close()
    return seconds


def _infer(channel: grpc.aio.Channel) -> Callable[[Any], Awaitable[Any]]:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    return partial(stub.ModelInfer, timeout=TIMEOUT_S)


def _embed(channel: grpc.aio.Channel) -> Callable[[Any], Awaitable[Any]]:
    return partial(text_pb2_grpc.TextServiceStub(channel).Embed, timeout=TIMEOUT_S)


def _generate(channel: grpc.aio.Channel) -> Callable[[Any], Awaitable[Any]]:
    stub = generation_pb2_grpc.GenerationServiceStub(channel)

    async def read(request: generation_pb2.GenerateRequest) -> list[float]:
        return [time.perf_counter() async for _ in stub.Generate(request, timeout=TIMEOUT_S)]

    return read


def tensor_request(model: str, texts: Sequence[str]) -> service_pb2.ModelInferRequest:
    return service_pb2.ModelInferRequest(
        model_name=model,
        inputs=[{"name": "text", "datatype": "BYTES", "shape": [len(texts), 1]}],
        raw_input_contents=[to_raw(np.array([text.encode() for text in texts], object))],
        parameters={"truncate": service_pb2.InferParameter(bool_param=True)},
    )


def _typed_request(model: str, texts: Sequence[str]) -> text_pb2.EmbedRequest:
    return text_pb2.EmbedRequest(model=model, texts=texts, truncate=True)


def _typed_body(model: str, texts: Sequence[str]) -> bytes:
    return post("/api/Embed", {"model": model, "texts": texts, "truncate": True})


def _openai_body(model: str, texts: Sequence[str]) -> bytes:
    fields = {"model": model, "input": texts, "encoding_format": "base64"}
    return post("/v1/embeddings", {**fields, "truncate_prompt_tokens": -1})


SUM = np.array([3, 4], "<i8").tobytes()
TENSOR = {"name": "x", "datatype": "INT64", "shape": [1, 2]}


def _sum_request(model: str, _: Sequence[str]) -> service_pb2.ModelInferRequest:
    return service_pb2.ModelInferRequest(
        model_name=model, id="17", inputs=[TENSOR], raw_input_contents=[SUM]
    )


def _sum_in_binary(model: str, _: Sequence[str]) -> bytes:
    sized = {**TENSOR, "parameters": {"binary_data_size": len(SUM)}}
    fields = {"id": "17", "parameters": {"binary_data_output": True}, "inputs": [sized]}
    head = json.dumps(fields).encode()
    length = f"inference-header-content-length: {len(head)}\r\n"
    return post(f"/v2/models/{model}/infer", head + SUM, length)


def _sum_in_json(model: str, _: Sequence[str]) -> bytes:
    return post(f"/v2/models/{model}/infer", {"id": "17", "inputs": [{**TENSOR, "data": [3, 4]}]})


PARAMS = {"max_tokens": NUM_TOKENS, "temperature": 0.0, "ignore_eos": True}


def _prompt_request(model: str, texts: Sequence[str]) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(model=model, text=texts[0], sampling_params=PARAMS)


def _prompt_body(model: str, texts: Sequence[str]) -> bytes:
    fields = {"model": model, "text": texts[0], "sampling_params": PARAMS}
    return post("/api/Generate", fields, "accept: text/event-stream\r\n")


def _completion_body(model: str, texts: Sequence[str]) -> bytes:
    fields = {"model": model, "prompt": texts[0], "stream": True, **PARAMS}
    return post("/v1/completions", fields)


# By what is asked, each protocol by its name; the first is what others are compared with.
PROTOCOLS = {
    SUMS: {
        "gRPC, raw tensors": Protocol(partial(_by_grpc, _infer), _sum_request),
        "HTTP, binary tensors": Protocol(_by_http, _sum_in_binary),
        "HTTP, tensors in JSON": Protocol(_by_http, _sum_in_json),
    },
    "embed": {
        "gRPC, tensors": Protocol(partial(_by_grpc, _infer), tensor_request),
        "gRPC, Embed": Protocol(partial(_by_grpc, _embed), _typed_request),
        "HTTP, /api/Embed": Protocol(_by_http, _typed_body),
        "HTTP, /v1/embeddings": Protocol(_by_http, _openai_body),
    },
    "generate": {
        "gRPC, Generate": Protocol(partial(_by_grpc, _generate), _prompt_request),
        "HTTP, /api/Generate": Protocol(_by_http, _prompt_body),
        "HTTP, /v1/completions": Protocol(_by_http, _completion_body),
    },
}
