"""Regions of shared memory: what may be registered, and that no client can break what reads it."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from service.api.regions import DISABLED, FOLDER, SharedMemoryRegions, place_of
from service.errors import (
    AlreadyExists,
    AttendantError,
    InvalidArgument,
    NotFound,
    RegionFailed,
    Unimplemented,
)

CONTENT = bytes(range(100))


@pytest.fixture
def memory() -> Iterator[Path]:
    """A shared memory object of 100 bytes."""
    path = FOLDER / f"attendant-test-{uuid4().hex}"
    path.write_bytes(CONTENT)
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def regions(memory: Path) -> SharedMemoryRegions:
    """With one region `r`: bytes 10 to 90 of the object."""
    found = allowing()
    found.register("r", f"/{memory.name}", 10, 80)
    return found


def allowing(max_regions: int = 4, max_bytes: int = 1_000) -> SharedMemoryRegions:
    return SharedMemoryRegions(is_allowed=True, max_regions=max_regions, max_bytes=max_bytes)


def error_of(call: Callable[[], Any]) -> tuple[type[AttendantError], str]:
    with pytest.raises(AttendantError) as caught:
        call()
    return type(caught.value), str(caught.value)


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_tensor_is_read_and_written_at_its_place(
    memory: Path, regions: SharedMemoryRegions
) -> None:
    assert regions.place("r", 5, 3).read() == bytes([15, 16, 17])
    regions.place("r", 78, 2).write(b"xy")
    assert memory.read_bytes() == CONTENT[:88] + b"xy" + CONTENT[90:]
    assert regions.place("r", 0, 0).read() == b""


def test_what_was_read_is_a_copy(memory: Path, regions: SharedMemoryRegions) -> None:
    raw = regions.place("r", 0, 3).read()
    memory.write_bytes(bytes(100))
    assert raw == bytes([10, 11, 12])


@pytest.mark.parametrize(
    ("place", "kind", "text"),
    [
        (("zz", 0, 1), NotFound, "Unable to find"),
        (("r", 80, 0), InvalidArgument, "Invalid offset for"),
        (("r", -1, 1), InvalidArgument, "Invalid offset for"),
        (("r", 2**63 - 1, 1), InvalidArgument, "Invalid offset for"),
        (("r", 79, 2), InvalidArgument, "Invalid offset + byte size for"),
        (("r", 0, 81), InvalidArgument, "Invalid offset + byte size for"),
        (("r", 0, -1), InvalidArgument, "Invalid offset + byte size for"),
        (("r", 1, 2**63 - 1), InvalidArgument, "Invalid offset + byte size for"),
    ],
)
def test_a_place_outside_its_region_is_refused_in_triton_s_words(
    regions: SharedMemoryRegions, place: tuple[str, int, int], kind: type[Exception], text: str
) -> None:
    expected = kind, f"{text} shared memory region: '{place[0]}'"
    assert error_of(lambda: regions.place(*place)) == expected


def test_an_object_that_its_owner_shrank_is_an_error_not_the_end(
    memory: Path, regions: SharedMemoryRegions
) -> None:
    """A mapping would kill the process here: 50 of 100 bytes are left, the region has 10 to 90."""
    os.truncate(memory, 50)
    assert regions.place("r", 0, 40).read() == CONTENT[10:50]
    failure = (RegionFailed, "shared memory region 'r' is smaller than its registered 80 bytes")
    assert error_of(regions.place("r", 0, 41).read) == failure
    assert error_of(lambda: regions.place("r", 0, 41).write(bytes(41))) == failure
    assert memory.stat().st_size == 50


def test_an_object_without_a_name_any_more_serves_until_it_is_unregistered(
    memory: Path, regions: SharedMemoryRegions
) -> None:
    memory.unlink()
    assert regions.place("r", 0, 1).read() == CONTENT[10:11]


def test_a_region_in_use_outlives_its_name_and_then_its_descriptor_is_closed(memory: Path) -> None:
    before = num_descriptors()
    regions = allowing()
    regions.register("r", memory.name, 0, 100)
    place = regions.place("r", 0, 2)
    regions.unregister("r")
    assert place.read() == CONTENT[:2]
    assert num_descriptors() == before + 1
    del place
    assert num_descriptors() == before


def test_unregistering_takes_one_all_or_none(memory: Path) -> None:
    regions = allowing()
    for name in ("a", "b", "c"):
        regions.register(name, memory.name, 0, 100)
    regions.unregister("nobody")
    regions.unregister("b")
    assert [region.name for region in regions.status("")] == ["a", "c"]
    assert [region.byte_size for region in regions.status("c")] == [100]
    regions.unregister("")
    assert list(regions.status("")) == []
    assert error_of(lambda: regions.status("a")) == (
        NotFound,
        "Unable to find system shared memory region: 'a'",
    )


@pytest.mark.parametrize("key", ["{}", "/{}", "//{}"])
def test_a_key_may_begin_with_slashes(memory: Path, key: str) -> None:
    """Python's own shared memory puts one before the one that Triton's clients write."""
    regions = allowing()
    regions.register("r", key.format(memory.name), 0, 100)
    assert regions.place("r", 0, 1).read() == CONTENT[:1]


@pytest.mark.parametrize(
    "key", ["/nobody-made-this", "/../etc/passwd", "/a/b", "..", ".", "a\0b", "/" + "x" * 300]
)
def test_a_key_that_is_no_object_s_name_is_refused(key: str) -> None:
    assert error_of(lambda: allowing().register("r", key, 0, 1)) == (
        RegionFailed,
        f"Unable to open shared memory region: '{key}'",
    )


@pytest.mark.parametrize("key", ["", "/", "///"])
def test_a_key_without_a_name_is_refused(key: str) -> None:
    assert error_of(lambda: allowing().register("r", key, 0, 1)) == (
        InvalidArgument,
        f"cannot register shared memory region 'r' - invalid shm key '{key}'",
    )


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


@pytest.mark.parametrize(
    "make",
    [lambda path: path.symlink_to("/etc/hostname"), os.mkfifo, os.mkdir, make_socket],
    ids=["symbolic link", "pipe", "folder", "socket"],
)
def test_only_plain_objects_are_opened(memory: Path, make: Callable[[Path], None]) -> None:
    memory.unlink()
    before = num_descriptors()
    make(memory)
    try:
        kind, text = error_of(lambda: allowing().register("r", memory.name, 0, 1))
    finally:
        memory.rmdir() if memory.is_dir() else memory.unlink()
    assert (kind, text) == (RegionFailed, f"Unable to open shared memory region: '{memory.name}'")
    assert num_descriptors() == before


@pytest.mark.parametrize(
    ("offset", "byte_size"),
    [(0, 101), (1, 100), (100, 1), (2**64 - 1, 1), (2**64 - 50, 50), (0, 0)],
)
def test_a_region_beyond_its_object_is_refused(memory: Path, offset: int, byte_size: int) -> None:
    regions, before = allowing(), num_descriptors()
    assert error_of(lambda: regions.register("r", memory.name, offset, byte_size)) == (
        InvalidArgument,
        "failed to register shared memory region 'r': invalid args",
    )
    assert num_descriptors() == before


def test_a_name_is_registered_once(memory: Path, regions: SharedMemoryRegions) -> None:
    assert error_of(lambda: regions.register("r", memory.name, 0, 1)) == (
        AlreadyExists,
        "shared memory region 'r' already in manager",
    )
    assert error_of(lambda: regions.register("", memory.name, 0, 1)) == (
        InvalidArgument,
        "cannot register shared memory region '' - the name is empty",
    )


def test_regions_are_bounded_by_number_and_bytes(memory: Path) -> None:
    regions = allowing(max_regions=2, max_bytes=150)
    regions.register("a", memory.name, 0, 100)
    assert error_of(lambda: regions.register("b", memory.name, 0, 51)) == (
        InvalidArgument,
        "byte_size is 51, which makes 151 bytes of shared memory in all, the server takes at most "
        "150",
    )
    regions.register("b", memory.name, 0, 50)
    assert error_of(lambda: regions.register("c", memory.name, 0, 1)) == (
        InvalidArgument,
        "2 shared memory regions are registered, the server takes at most 2",
    )
    regions.unregister("a")
    regions.register("c", memory.name, 0, 100)


def test_what_is_not_allowed_says_how_to_allow_it(memory: Path) -> None:
    """The status is an answer all the same: there are none."""
    regions = SharedMemoryRegions(is_allowed=False, max_regions=4, max_bytes=1_000)
    for call in (
        lambda: regions.register("r", memory.name, 0, 1),
        lambda: regions.unregister(""),
        lambda: regions.place("r", 0, 1),
    ):
        assert error_of(call) == (Unimplemented, DISABLED)
    assert list(regions.status("")) == []


WRONG_TYPE = "invalid value type for 'shared_memory_{}' parameter for tensor 'X', expected {}."
ALONE = "'shared_memory_{}' can not be specified without 'shared_memory_region' parameter for "
NO_SIZE = "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter"
REGION = {"string_param": "r"}
PARAMETERS: list[tuple[dict[str, dict[str, Any]], str]] = [
    ({"region": {"int64_param": 1}}, WRONG_TYPE.format("region", "string_param")),
    ({"offset": {"int64_param": 1}}, ALONE.format("offset") + "tensor 'X'"),
    ({"byte_size": {"int64_param": 1}}, ALONE.format("byte_size") + "tensor 'X'"),
    ({"region": REGION, "offset": {"uint64_param": 1}}, WRONG_TYPE.format("offset", "int64_param")),
    (
        {"region": REGION, "byte_size": {"string_param": "1"}},
        WRONG_TYPE.format("byte_size", "int64_param"),
    ),
    ({"region": REGION, "offset": {"int64_param": 1}}, f"{NO_SIZE} for tensor 'X'"),
]


@pytest.mark.parametrize(("parameters", "text"), PARAMETERS, ids=str)
def test_parameters_that_name_no_place_are_refused_in_triton_s_words(
    regions: SharedMemoryRegions, parameters: dict[str, dict[str, Any]], text: str
) -> None:
    tensor = pb.ModelInferRequest.InferRequestedOutputTensor(name="X")
    for name, value in parameters.items():
        tensor.parameters[f"shared_memory_{name}"].CopyFrom(pb.InferParameter(**value))
    assert error_of(lambda: place_of(tensor, regions)) == (InvalidArgument, text)


PARAMETER = st.one_of(
    st.builds(pb.InferParameter),
    st.builds(pb.InferParameter, int64_param=st.integers(-(2**63), 2**63 - 1) | st.integers(0, 99)),
    st.builds(pb.InferParameter, uint64_param=st.integers(0, 2**64 - 1)),
    st.builds(pb.InferParameter, string_param=st.sampled_from(["r", "zz", ""])),
    st.builds(pb.InferParameter, bool_param=st.booleans()),
)
NAMES = st.sampled_from([f"shared_memory_{name}" for name in ("region", "offset", "byte_size")])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, PARAMETER))
def test_whatever_parameters_say_nothing_outside_the_region_is_read(
    regions: SharedMemoryRegions, parameters: dict[str, pb.InferParameter]
) -> None:
    """The region is bytes 10 to 90, whose values are their places."""
    tensor = pb.ModelInferRequest.InferInputTensor(name="X")
    for name, value in parameters.items():
        tensor.parameters[name].CopyFrom(value)
    try:
        place = place_of(tensor, regions)
    except (InvalidArgument, NotFound):
        return
    assert (place is None) == (not parameters)
    if place is not None:
        assert set(place.read()) <= set(CONTENT[10:90])
