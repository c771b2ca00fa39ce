"""Servers restarted one after the other under clients without special options."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from tests.e2e.calls import LIMIT_S
from tests.e2e.graphs import add_sub, run_one_at_a_time, slow, write_graph
from tests.e2e.server import ServerProcess, free_ports

RESTARTS = 4
CUT_OFF = "CANCELLED: CANCELLED"  # by gRPC, see below
MAX_CUT_OFF = 0.01  # of all calls: 6 of 1,771 were seen while others had the processors
# The same race, seen once in 1,639 calls on a busy machine: gRPC closes the connection instead.
CLOSED = (
    "UNAVAILABLE: Stream removed (Socket closed (GOAWAY received; "
    "Error code: 0; Debug Text: Server shutdown))"
)
EVERY_S = 0.06  # a call of each client
SETTLE_S = 1.5  # between restarts, for clients to find the server again
# Waits between attempts to connect, scaled down as the time between restarts is.
PLAIN = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)
ROUND_ROBIN = ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]}))


@pytest.mark.timeout(300)
async def test_plain_clients_lose_no_call_while_servers_restart(
    tmp_path: Path, long_iterations: int
) -> None:
    """Two servers, ended in turn while a request of 2 s runs in the one that ends.

    Three clients with neither retries nor health checks: pick_first and round_robin over both
    addresses, and one behind a balancer of connections. A server that refused calls on connections
    which it keeps would lose them every call for those 2 s, or every second one: 774 of 1,750.
    gRPC itself cancels a call that comes between its closing and the client's hearing of it, which
    takes longer on a busy machine: at most one in a hundred of some 1,200 to 1,700 calls, and no
    other loss.
    """
    write_graph(add_sub(), tmp_path, "add-sub")
    write_graph(slow(), tmp_path, "slow")
    run_one_at_a_time(tmp_path, "slow")
    with _Pair(tmp_path, free_ports(2)) as servers:
        outcome = await _restart_under_load(servers, 2 * long_iterations)
    assert outcome["OK"] > 100, outcome
    known = (CUT_OFF, CLOSED)  # not "Server not ready": ports open once models are loaded
    assert set(outcome) <= {"OK", *known}, outcome
    assert sum(outcome[each] for each in known) <= MAX_CUT_OFF * outcome.total(), outcome


class _Pair:
    """Two server processes over one repository."""

    def __init__(self, repository: Path, ports: Sequence[int]) -> None:
        self._repository = repository
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self._processes = [self._server(index) for index in range(len(ports))]

    def _server(self, index: int) -> ServerProcess:
        port = self.addresses[index].rpartition(":")[2]
        return ServerProcess(self._repository, "--grpc-port", port)

    def __enter__(self) -> "_Pair":
        for process in self._processes:
            process.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.__exit__(None, None, None)

    def end(self, index: int) -> None:
        self._processes[index].send(signal.SIGTERM)
        assert self._processes[index].exit_code() == 0
        self._processes[index].__exit__(None, None, None)

    def start(self, index: int) -> None:
        self._processes[index] = self._server(index)
        self._processes[index].__enter__()


async def _restart_under_load(servers: _Pair, iterations: int) -> Counter[str]:
    """What became of the calls, by status."""
    outcome: Counter[str] = Counter()
    both = f"ipv4:{','.join(servers.addresses)}"
    is_over = asyncio.Event()
    async with AsyncExitStack() as stack:
        balancer = await stack.enter_async_context(_balancer(servers.addresses))
        targets = (both, PLAIN), (both, (*PLAIN, ROUND_ROBIN)), (balancer, PLAIN)
        for target, options in targets:
            channel = grpc.aio.insecure_channel(target, options)
            await stack.enter_async_context(channel)
            await channel.channel_ready()
            await stack.enter_async_context(_asking(channel, outcome, is_over))
        for number in range(RESTARTS):
            await asyncio.sleep(SETTLE_S)
            index = number % 2
            async with grpc.aio.insecure_channel(servers.addresses[index]) as own:
                long = asyncio.create_task(_ask(own, "slow", outcome, iterations))
                await asyncio.sleep(0.2)  # until it runs
                await asyncio.to_thread(servers.end, index)
                await long
            await asyncio.to_thread(servers.start, index)
        await asyncio.sleep(SETTLE_S)
        is_over.set()
    return outcome


@asynccontextmanager
async def _asking(
    channel: grpc.aio.Channel, outcome: Counter[str], is_over: asyncio.Event
) -> AsyncIterator[None]:
    """A call every now and then, whatever became of the others; all have ended after the block."""

    async def ask_on() -> None:
        async with asyncio.TaskGroup() as calls:
            while not is_over.is_set():
                calls.create_task(_ask(channel, "add-sub", outcome))
                await asyncio.sleep(EVERY_S)

    asking = asyncio.create_task(ask_on())
    try:
        yield
    finally:
        is_over.set()
        await asking


async def _ask(
    channel: grpc.aio.Channel, model: str, outcome: Counter[str], iterations: int = 0
) -> None:
    stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    request = pb.ModelInferRequest(model_name=model)
    if model == "slow":
        _add(request, "iterations", np.array([iterations]))
        _add(request, "tag", np.array([1]))
    else:
        for name in ("INPUT0", "INPUT1"):
            _add(request, name, np.full((1, 16), 3, np.int32))
    try:
        await stub.ModelInfer(request, timeout=LIMIT_S)
        outcome["OK"] += 1
    except grpc.aio.AioRpcError as error:
        outcome[f"{error.code().name}: {error.details()}"] += 1


def _add(request: pb.ModelInferRequest, name: str, values: np.ndarray) -> None:
    kind = "INT32" if values.dtype == np.int32 else "INT64"
    request.inputs.add(name=name, datatype=kind, shape=values.shape)
    request.raw_input_contents.append(values.tobytes())


@asynccontextmanager
async def _balancer(addresses: Sequence[str]) -> AsyncIterator[str]:
    """Carries each connection to the first server that listens, as a Service of a cluster does."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for address in addresses:
            host, port = address.split(":")
            with suppress(OSError):
                back_reader, back_writer = await asyncio.open_connection(host, int(port))
                await asyncio.gather(_copy(reader, back_writer), _copy(back_reader, writer))
                return
        writer.close()

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # either side has gone
        while content := await reader.read(65_536):
            writer.write(content)
            await writer.drain()
    writer.close()
