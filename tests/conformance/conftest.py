"""One server process for the whole folder, and clients of every kind."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from tritonclient import grpc as triton
from tritonclient.grpc import aio, service_pb2_grpc

from tests.conformance.models import write_repository
from tests.e2e.server import ServerProcess

LONG_S = 0.3  # of one idle core: what the slow models take
FLAGS = (
    "--server-name",
    "triton",
    "--model-control-mode",
    "explicit",
    "--load-models",
    "*",
    "--allow-client-shm",
    "--response-cache-bytes",
    "1000000",
    "--http-port",
    "0",
)


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conformance")
    write_repository(folder, LONG_S)
    return folder


@pytest.fixture(scope="session")
def server(repository: Path) -> Iterator[ServerProcess]:
    with ServerProcess(repository, *FLAGS) as process:
        yield process


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.address) as connected:
        yield connected


@pytest_asyncio.fixture
async def aio_client(server: ServerProcess) -> AsyncIterator[aio.InferenceServerClient]:
    async with aio.InferenceServerClient(server.address) as connected:
        yield connected


@pytest.fixture(scope="session")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as connected:
        yield connected


@pytest.fixture(scope="session")
def stub(channel: grpc.Channel) -> service_pb2_grpc.GRPCInferenceServiceStub:
    """For messages that tritonclient refuses to send."""
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)
