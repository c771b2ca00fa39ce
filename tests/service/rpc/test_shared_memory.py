"""Shared memory over the wire: tritonclient unmodified, and clients that misbehave."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import numpy as np
import pytest
import pytest_asyncio
from grpc import StatusCode
from tritonclient.grpc import service_pb2 as pb

from service.api.regions import DISABLED, FOLDER
from tests.fakes.refusals import UNKNOWN_ID
from tests.fakes.serving import (
    Served,
    eventually,
    refusal,
    serving,
    simple_request,
    within_patience,
    write_models,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"allow_client_shm": True, "max_message_bytes": 4096}
NUM_BYTES = 256


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def closed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A server as it is by default."""
    repository = tmp_path_factory.mktemp("model_repository")
    write_models(repository)
    async with serving(repository) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def served(server: Served) -> AsyncIterator[Served]:
    yield server
    server.forget()
    await server.inference.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest())


@pytest.fixture
def key() -> Iterator[str]:
    """Of an object of 256 bytes: sixteen times 3, sixteen times 2, and zeros."""
    path = FOLDER / f"attendant-test-{uuid4().hex}"
    values = np.zeros(NUM_BYTES // 4, "<i4")
    values[:16], values[16:32] = 3, 2
    path.write_bytes(values.tobytes())
    yield f"/{path.name}"
    path.unlink(missing_ok=True)


async def register(served: Served, key: str, byte_size: int = NUM_BYTES) -> None:
    request = pb.SystemSharedMemoryRegisterRequest(name="r", key=key, byte_size=byte_size)
    await served.inference.SystemSharedMemoryRegister(request)


def place(tensor: Any, offset: int, byte_size: int, region: str = "r") -> None:
    tensor.parameters["shared_memory_region"].string_param = region
    tensor.parameters["shared_memory_byte_size"].int64_param = byte_size
    tensor.parameters["shared_memory_offset"].int64_param = offset


def shared_request() -> pb.ModelInferRequest:
    """Inputs from the first half of region `r`, outputs into the second."""
    request = simple_request()
    del request.raw_input_contents[:]
    for index, tensor in enumerate(request.inputs):
        place(tensor, 64 * index, 64)
        place(request.outputs.add(name=f"OUTPUT{index}"), 128 + 64 * index, 64)
    return request


def content(key: str) -> list[int]:
    values: list[int] = np.fromfile(FOLDER / key[1:], "<i4")[::16].tolist()
    return values


async def test_strings_come_from_and_go_to_shared_memory(served: Served, key: str) -> None:
    raw = b"\2\0\0\0ab" + b"\0\0\0\0"
    (FOLDER / key[1:]).write_bytes(raw + bytes(NUM_BYTES - len(raw)))
    await register(served, key)
    request = pb.ModelInferRequest(model_name="strings")
    place(request.inputs.add(name="IN", datatype="BYTES", shape=[1, 2]), 0, len(raw))
    place(request.outputs.add(name="OUT"), 100, 100)
    response = await served.inference.ModelInfer(request)
    assert list(response.outputs[0].shape) == [1, 2]
    assert (FOLDER / key[1:]).read_bytes()[100 : 100 + len(raw)] == raw


async def test_a_stream_s_outputs_go_to_shared_memory_too(served: Served, key: str) -> None:
    await register(served, key)
    call = served.inference.ModelStreamInfer(iter([shared_request()]))
    (response,) = [response async for response in call]
    assert not response.error_message
    assert list(response.infer_response.raw_output_contents) == [b"", b""]
    assert content(key) == [3, 2, 5, 1]


SIZE_ALONE = "must be specified along with 'shared_memory_region' parameter for tensor 'INPUT0'"
OFFSET_ALONE = "can not be specified without 'shared_memory_region' parameter for tensor 'INPUT0'"
CHANGES: dict[str, tuple[Callable[[pb.ModelInferRequest], Any], str]] = {
    "unknown input region": (
        lambda r: place(r.inputs[0], 0, 64, "zz"),
        "NOT_FOUND: Unable to find shared memory region: 'zz'",
    ),
    "unknown output region": (
        lambda r: place(r.outputs[0], 0, 64, "zz"),
        "NOT_FOUND: Unable to find shared memory region: 'zz'",
    ),
    "out of bounds": (
        lambda r: place(r.inputs[0], 200, 64),
        "INVALID_ARGUMENT: Invalid offset + byte size for shared memory region: 'r'",
    ),
    "no size": (
        lambda r: r.inputs[0].parameters.pop("shared_memory_byte_size"),
        f"INVALID_ARGUMENT: 'shared_memory_byte_size' {SIZE_ALONE}",
    ),
    "offset only": (
        lambda r: r.inputs[0].parameters.pop("shared_memory_region"),
        f"INVALID_ARGUMENT: 'shared_memory_offset' {OFFSET_ALONE}",
    ),
    "another size than the shape's": (
        lambda r: place(r.inputs[0], 0, 60),
        f"INVALID_ARGUMENT: {UNKNOWN_ID}input byte size mismatch for input 'INPUT0' for model "
        "'simple'. Expected 64, got 60",
    ),
    "contents too": (
        lambda r: r.inputs[1].contents.int_contents.append(1),
        "INVALID_ARGUMENT: unexpected 'content' provided when using shared memory for input tensor "
        "'INPUT1' for model 'simple'",
    ),
    "no data for the others": (
        lambda r: r.inputs[1].parameters.clear(),
        "INVALID_ARGUMENT: unable to find data for input tensor 'INPUT1' for model 'simple' in "
        "request.",
    ),
    "classes in shared memory": (
        lambda r: setattr(r.outputs[0].parameters["classification"], "int64_param", 1),
        "INVALID_ARGUMENT: output can't set both 'shared_memory_region' and 'classification'",
    ),
    "no room for the output": (
        lambda r: place(r.outputs[1], 192, 60),
        "INTERNAL: shared memory size specified with the request for output 'OUTPUT1' (60 bytes) "
        "should be at least 64 bytes to hold the results",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
async def test_what_cannot_be_shared_is_refused_in_triton_s_words(
    served: Served, key: str, case: str
) -> None:
    change, expected = CHANGES[case]
    await register(served, key)
    request = shared_request()
    change(request)
    code, text = await refusal(served.inference.ModelInfer(request))
    assert f"{code.name}: {text}" == expected


async def test_inputs_in_shared_memory_are_bounded_like_a_message(served: Served, key: str) -> None:
    """An object of no pages costs its owner nothing, and a copy of it would cost the server."""
    os.truncate(FOLDER / key[1:], 2**20)
    await register(served, key, 2**20)
    request = shared_request()
    place(request.inputs[0], 0, 2**20)
    assert await refusal(served.inference.ModelInfer(request)) == (
        StatusCode.INVALID_ARGUMENT,
        "inputs in shared memory have 1048640 bytes, the server takes at most 4096 in one request",
    )


async def test_memory_that_shrinks_ends_its_own_requests_only(served: Served, key: str) -> None:
    """Before the inputs are read, and before the outputs are written."""
    await register(served, key)
    os.truncate(FOLDER / key[1:], 128)
    expected = (
        StatusCode.INTERNAL,
        "shared memory region 'r' is smaller than its registered 256 bytes",
    )
    assert await refusal(served.inference.ModelInfer(shared_request())) == expected
    os.truncate(FOLDER / key[1:], 32)
    assert await refusal(served.inference.ModelInfer(shared_request())) == expected
    assert (await served.inference.ModelInfer(simple_request())).model_name == "simple"


async def test_a_region_unregistered_during_a_run_ends_that_request(
    served: Served, key: str
) -> None:
    await register(served, key)
    session = served.sessions["simple"]
    session.hold()
    asked = asyncio.ensure_future(served.inference.ModelInfer(shared_request()))
    await asyncio.to_thread(session.wait_for_runs, 1)
    os.truncate(FOLDER / key[1:], 0)
    everything = pb.SystemSharedMemoryUnregisterRequest()
    await served.inference.SystemSharedMemoryUnregister(everything)
    session.release()
    assert await refusal(asked) == (
        StatusCode.NOT_FOUND,
        "Unable to find shared memory region: 'r'",
    )
    assert [batch["INPUT0"].tolist() for batch in session.batches] == [[[3] * 16]]


async def test_registering_is_answered_in_triton_s_words(served: Served, key: str) -> None:
    await register(served, key)
    assert await refusal(register(served, key)) == (
        StatusCode.ALREADY_EXISTS,
        "shared memory region 'r' already in manager",
    )
    request = pb.SystemSharedMemoryRegisterRequest(name="s", key="/none", byte_size=1)
    assert await refusal(served.inference.SystemSharedMemoryRegister(request)) == (
        StatusCode.INTERNAL,
        "Unable to open shared memory region: '/none'",
    )
    status = pb.SystemSharedMemoryStatusRequest(name="r")
    found = (await served.inference.SystemSharedMemoryStatus(status)).regions["r"]
    assert (found.name, found.key, found.offset, found.byte_size) == ("r", key, 0, NUM_BYTES)
    unknown = pb.SystemSharedMemoryStatusRequest(name="s")
    assert await refusal(served.inference.SystemSharedMemoryStatus(unknown)) == (
        StatusCode.NOT_FOUND,
        "Unable to find system shared memory region: 's'",
    )
    await served.inference.SystemSharedMemoryUnregister(
        pb.SystemSharedMemoryUnregisterRequest(name="s")
    )


async def test_there_is_no_cuda_memory_to_share(served: Served, key: str) -> None:
    await register(served, key)
    assert not (
        await served.inference.CudaSharedMemoryStatus(pb.CudaSharedMemoryStatusRequest())
    ).regions
    for name, text in (
        ("c", "Unable to find cuda shared memory region: 'c'"),
        ("r", "The region named 'r' is registered as system shared memory, not CUDA shared memory"),
    ):
        status = pb.CudaSharedMemoryStatusRequest(name=name)
        assert await refusal(served.inference.CudaSharedMemoryStatus(status)) == (
            StatusCode.NOT_FOUND,
            text,
        )
    request = pb.CudaSharedMemoryRegisterRequest(name="c", raw_handle=b"x" * 64, byte_size=1)
    assert await refusal(served.inference.CudaSharedMemoryRegister(request)) == (
        StatusCode.INVALID_ARGUMENT,
        "failed to register shared memory region: 'c', invalid args: no GPUs here",
    )
    for name in ("c", "r", ""):
        await served.inference.CudaSharedMemoryUnregister(
            pb.CudaSharedMemoryUnregisterRequest(name=name)
        )
    assert (await served.inference.ModelInfer(shared_request())).model_name == "simple"


async def test_by_default_clients_share_nothing(closed: Served, key: str) -> None:
    """Neither by registering nor by naming a region; the status is an answer all the same."""
    refused = StatusCode.UNIMPLEMENTED, DISABLED
    calls: list[grpc.aio.UnaryUnaryCall[Any, Any]] = [
        closed.inference.SystemSharedMemoryRegister(
            pb.SystemSharedMemoryRegisterRequest(name="r", key=key, byte_size=1)
        ),
        closed.inference.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest()),
        closed.inference.CudaSharedMemoryUnregister(pb.CudaSharedMemoryUnregisterRequest()),
        closed.inference.ModelInfer(shared_request()),
    ]
    for call in calls:
        assert await refusal(call) == refused
    status = await closed.inference.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest())
    assert not status.regions
    metadata = await closed.inference.ServerMetadata(pb.ServerMetadataRequest())
    assert "system_shared_memory" not in metadata.extensions


async def test_inputs_in_shared_memory_count_among_the_bytes_in_flight(
    models: Path, key: str
) -> None:
    """They are copied: a request of a few bytes may take as much memory as a region has."""
    request = shared_request()
    request.id = "x" * 1_000
    num_bytes = request.ByteSize() + 2 * 64
    settings = {"allow_client_shm": True, "max_bytes_in_flight": num_bytes - 1}
    async with serving(models, **settings) as server:
        await register(server, key)
        text = f"the request has {num_bytes} bytes, the server takes at most {num_bytes - 1}"
        code, details = await refusal(server.inference.ModelInfer(request))
        assert (code, details.startswith(text)) == (StatusCode.INVALID_ARGUMENT, True)
        stream = server.inference.ModelStreamInfer(iter([request]))
        text = f"Exceeds maximum of {num_bytes - 1} bytes in flight"
        assert (await within_patience(stream.read())).error_message == text
        await eventually(lambda: not server.app._admission.num_bytes)
