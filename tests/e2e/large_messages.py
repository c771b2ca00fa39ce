"""Waits of small calls beside large requests, which a process of its own sends without pause."""

import multiprocessing
import os
import threading
import time
from typing import Any

import grpc
from tritonclient.grpc import service_pb2

IDENTITY = "identity"  # a model that gives back rows of FP32
SERVICE = "/inference.GRPCInferenceService/"
TIMEOUT_S = 60.0
SETTLE_S = 2.0  # of large requests alone
PAUSE_S = 0.01  # between small calls
OPTIONS = [(f"grpc.max_{way}_message_length", -1) for way in ("receive", "send")]


def beside(address: str, clients: int, megabytes: int, seconds: float) -> dict[str, list[float]]:
    """The milliseconds of each small call while clients sent large requests."""
    context = multiprocessing.get_context("spawn")
    load = context.Process(target=send_large, args=(address, clients, megabytes), daemon=True)
    load.start()
    try:
        time.sleep(SETTLE_S)
        with grpc.insecure_channel(address) as channel:
            infer: Any = channel.unary_unary(f"{SERVICE}ModelInfer")
            live: Any = channel.unary_unary(f"{SERVICE}ServerLive")
            small = message_of(4)
            found: dict[str, list[float]] = {"ModelInfer": [], "ServerLive": []}
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                found["ModelInfer"].append(_wait_ms(infer, small))
                found["ServerLive"].append(_wait_ms(live, b""))
        assert load.is_alive(), "a client of large requests failed"
        return found
    finally:
        load.kill()
        load.join()


def _wait_ms(call: Any, message: bytes) -> float:
    started_s = time.monotonic()
    call(message, timeout=TIMEOUT_S)
    waited_s = time.monotonic() - started_s
    time.sleep(PAUSE_S)
    return waited_s * 1e3


def send_large(address: str, clients: int, megabytes: int) -> None:
    """Until the process is ended; it ends by itself where a request fails."""
    os.nice(10)  # where processors are few, the server comes first
    message = message_of(megabytes * 250_000)

    def send() -> None:
        options = [*OPTIONS, ("grpc.use_local_subchannel_pool", 1)]  # a connection each
        with grpc.insecure_channel(address, options) as channel:
            infer: Any = channel.unary_unary(f"{SERVICE}ModelInfer")
            while len(infer(message, timeout=TIMEOUT_S)) > megabytes * 10**6:
                pass

    threads = [threading.Thread(target=send, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    while all(thread.is_alive() for thread in threads):
        time.sleep(PAUSE_S)


def message_of(count: int) -> bytes:
    request = service_pb2.ModelInferRequest(model_name=IDENTITY)
    request.inputs.add(name="x", datatype="FP32", shape=[1, count])
    request.raw_input_contents.append(bytes(4 * count))
    return bytes(request.SerializeToString())
