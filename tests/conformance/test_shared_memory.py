"""Tensors in system shared memory, and what is said where there is none."""

import uuid
from collections.abc import Iterator

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import serialize_byte_tensor, serialized_byte_size
from tritonclient.utils import shared_memory as shm

from tests.conformance.messages import refused

SIZE = 64  # bytes of one tensor of `simple`
COUNTING = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.ones((1, 16), np.int32)


class Region:
    """A region that the server knows by `name`, gone after the test."""

    def __init__(self, client: triton.InferenceServerClient, num_bytes: int) -> None:
        self.name, self.key = f"r{uuid.uuid4().hex}", f"/attendant-{uuid.uuid4().hex}"
        self.handle = shm.create_shared_memory_region(self.name, self.key, num_bytes)
        self._client = client
        client.register_system_shared_memory(self.name, self.key, num_bytes)

    def close(self) -> None:
        self._client.unregister_system_shared_memory(self.name)
        shm.destroy_shared_memory_region(self.handle)


@pytest.fixture
def region(client: triton.InferenceServerClient) -> Iterator[Region]:
    made = Region(client, 4 * SIZE)
    yield made
    made.close()


def tensors(name: str, size: int = SIZE, at: int = 0) -> list[triton.InferInput]:
    inputs = [triton.InferInput(f"INPUT{index}", [1, 16], "INT32") for index in range(2)]
    inputs[0].set_shared_memory(name, size, at)
    inputs[1].set_shared_memory(name, size, at + SIZE)
    return inputs


def test_inputs_and_outputs_in_shared_memory(
    client: triton.InferenceServerClient, region: Region
) -> None:
    shm.set_shared_memory_region(region.handle, [COUNTING, ONES])
    outputs = [triton.InferRequestedOutput(f"OUTPUT{index}") for index in range(2)]
    outputs[0].set_shared_memory(region.name, SIZE, 2 * SIZE)
    outputs[1].set_shared_memory(region.name, SIZE, 3 * SIZE)
    answer = client.infer("simple", tensors(region.name), outputs=outputs).get_response()
    assert list(answer.raw_output_contents) == [b"", b""]
    total, difference = (
        shm.get_contents_as_numpy(region.handle, np.int32, [1, 16], at)
        for at in (2 * SIZE, 3 * SIZE)
    )
    assert np.array_equal(total, COUNTING + ONES)
    assert np.array_equal(difference, COUNTING - ONES)


def test_one_input_in_shared_memory_and_one_raw(
    client: triton.InferenceServerClient, region: Region
) -> None:
    """Raw contents are counted without the inputs that are elsewhere."""
    shm.set_shared_memory_region(region.handle, [COUNTING])
    inputs = tensors(region.name)
    inputs[1] = triton.InferInput("INPUT1", [1, 16], "INT32")
    inputs[1].set_data_from_numpy(ONES)
    result = client.infer("simple", inputs)
    assert np.array_equal(result.as_numpy("OUTPUT0"), COUNTING + ONES)


def test_strings_in_shared_memory(client: triton.InferenceServerClient, region: Region) -> None:
    words = np.array([[b"a", "naïve".encode(), b""]], object)
    serialized = serialize_byte_tensor(words)
    shm.set_shared_memory_region(region.handle, [serialized])
    tensor = triton.InferInput("INPUT0", [1, 3], "BYTES")
    tensor.set_shared_memory(region.name, serialized_byte_size(serialized))
    result = client.infer("simple_identity", [tensor])
    assert result.as_numpy("OUTPUT0").tolist() == words.tolist()


def test_status_lists_what_is_registered(
    client: triton.InferenceServerClient, region: Region
) -> None:
    regions = client.get_system_shared_memory_status().regions
    assert regions[region.name].key == region.key
    assert (regions[region.name].offset, regions[region.name].byte_size) == (0, 4 * SIZE)
    (only,) = client.get_system_shared_memory_status(region.name).regions.values()
    assert only.name == region.name


def test_unregistering_what_there_is_not_is_well(client: triton.InferenceServerClient) -> None:
    client.unregister_system_shared_memory("nothing")
    client.unregister_cuda_shared_memory("nothing")
    client.unregister_cuda_shared_memory()


@pytest.mark.parametrize(
    ("size", "at"), [(SIZE, 4 * SIZE), (SIZE, 2**40), (2**40, 0), (SIZE, 4 * SIZE - 1)]
)
def test_no_byte_outside_of_a_region_is_read(
    client: triton.InferenceServerClient, region: Region, size: int, at: int
) -> None:
    with refused("INVALID_ARGUMENT", ""):
        client.infer("simple", tensors(region.name, size, at))


def test_cuda_regions_are_refused_without_cuda(client: triton.InferenceServerClient) -> None:
    assert not client.get_cuda_shared_memory_status().regions
    with refused("INVALID_ARGUMENT", "failed to register"):
        client.register_cuda_shared_memory("nothing", b"", 0, SIZE)
