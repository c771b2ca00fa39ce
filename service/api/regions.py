"""Regions of shared memory that clients register, to pass tensors through.

A client on the same machine makes a POSIX shared memory object and sends its key. The object stays
the client's: it may shrink it or write to it at any time, so no part of it is ever mapped.
Every access is one copying read or write of a file, with an error if bytes are missing. So
validated bytes cannot change afterwards, and no client can crash the server this way. Knows
nothing of gRPC or tensors; lives on the event loop.
"""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tritonclient.grpc import service_pb2 as pb

from service.errors import AlreadyExists, InvalidArgument, NotFound, RegionFailed, Unimplemented

FOLDER = Path("/dev/shm")  # noqa: S108 - where Linux keeps POSIX shared memory
DISABLED = "Client shared memory is disabled. Start the server with '--allow-client-shm' to enable."


@dataclass(frozen=True, slots=True)
class Region:
    """`byte_size` bytes from `offset` of the object `key`, open as long as it is referenced."""

    name: str
    key: str
    offset: int
    byte_size: int
    descriptor: int

    def has_bytes(self, end: int) -> bool:
        """Whether the object still reaches so far."""
        return os.fstat(self.descriptor).st_size >= end

    def __del__(self) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one tensor: `byte_size` bytes from `offset` of a region."""

    region: Region
    offset: int
    byte_size: int

    def read(self) -> bytes:
        """A copy, or `RegionFailed` where the object has become too small."""
        self._check_end(self.byte_size)
        raw = os.pread(self.region.descriptor, self.byte_size, self._start)
        if len(raw) != self.byte_size:
            raise self._shrunk()
        return raw

    def write(self, raw: bytes) -> None:
        """Put an output there; the object never grows by it."""
        assert len(raw) <= self.byte_size
        self._check_end(len(raw))
        try:
            num_written = os.pwrite(self.region.descriptor, raw, self._start)
        except OSError as error:
            raise RegionFailed(
                f"unable to write shared memory region '{self.region.name}': {error.strerror}"
            ) from error
        if num_written != len(raw):
            raise self._shrunk()

    @property
    def _start(self) -> int:
        return self.region.offset + self.offset

    def _check_end(self, num_bytes: int) -> None:
        if not self.region.has_bytes(self._start + num_bytes):
            raise self._shrunk()

    def _shrunk(self) -> RegionFailed:
        return RegionFailed(
            f"shared memory region '{self.region.name}' is smaller than its registered "
            f"{self.region.byte_size} bytes"
        )


class SharedMemoryRegions:
    """The registered regions by name, with bounds on their number and their bytes in all."""

    def __init__(self, *, is_allowed: bool, max_regions: int, max_bytes: int) -> None:
        self.is_allowed = is_allowed
        self._max_regions = max_regions
        self._max_bytes = max_bytes
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Open the object `key` for reading and writing, as `name`."""
        self.check_allowed()
        if name in self._regions:
            raise AlreadyExists(f"shared memory region '{name}' already in manager")
        if not name:
            raise InvalidArgument("cannot register shared memory region '' - the name is empty")
        self._check_room(byte_size)
        descriptor = _open(name, key)
        status = os.fstat(descriptor)
        is_memory = stat.S_ISREG(status.st_mode)  # not a pipe or a device
        if not is_memory or not byte_size or offset + byte_size > status.st_size:
            os.close(descriptor)
            if not is_memory:
                raise _not_opened(key)
            raise InvalidArgument(f"failed to register shared memory region '{name}': invalid args")
        self._regions[name] = Region(name, key, offset, byte_size, descriptor)

    def unregister(self, name: str) -> None:
        """Forget a region; one that is not there is fine, and the empty name is all of them."""
        self.check_allowed()
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def status(self, name: str) -> Iterable[Region]:
        """One region, or all under the empty name."""
        if not name:
            return list(self._regions.values())
        if name not in self._regions:
            raise NotFound(f"Unable to find system shared memory region: '{name}'")
        return [self._regions[name]]

    def __contains__(self, name: str) -> bool:
        return name in self._regions

    def place(self, name: str, offset: int, byte_size: int) -> Place:
        """A part of a region, within its bounds."""
        self.check_allowed()
        region = self._regions.get(name)
        if region is None:
            raise NotFound(f"Unable to find shared memory region: '{name}'")
        if not 0 <= offset < region.byte_size:
            raise InvalidArgument(f"Invalid offset for shared memory region: '{name}'")
        if not 0 <= byte_size <= region.byte_size - offset:
            raise InvalidArgument(f"Invalid offset + byte size for shared memory region: '{name}'")
        return Place(region, offset, byte_size)

    def check_allowed(self) -> None:
        if not self.is_allowed:
            raise Unimplemented(DISABLED)

    def _check_room(self, byte_size: int) -> None:
        if len(self._regions) >= self._max_regions:
            raise InvalidArgument(
                f"{len(self._regions)} shared memory regions are registered, "
                f"the server takes at most {self._max_regions}"
            )
        num_bytes = sum(region.byte_size for region in self._regions.values()) + byte_size
        if num_bytes > self._max_bytes:
            raise InvalidArgument(
                f"byte_size is {byte_size}, which makes {num_bytes} bytes of shared memory in all, "
                f"the server takes at most {self._max_bytes}"
            )


def _open(name: str, key: str) -> int:
    """A descriptor of what `shm_open` finds: a plain name, whatever slashes it begins with."""
    plain = key.lstrip("/")
    if not plain:
        raise InvalidArgument(
            f"cannot register shared memory region '{name}' - invalid shm key '{key}'"
        )
    if "/" in plain:
        raise _not_opened(key)
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would block
    try:
        return os.open(FOLDER / plain, flags)
    except (OSError, ValueError) as error:  # ValueError: the key has a NUL
        raise _not_opened(key) from error


def _not_opened(key: str) -> RegionFailed:
    return RegionFailed(f"Unable to open shared memory region: '{key}'")


Tensor: TypeAlias = (
    pb.ModelInferRequest.InferInputTensor | pb.ModelInferRequest.InferRequestedOutputTensor
)
REGION = "shared_memory_region"
_OFFSET = "shared_memory_offset"
_BYTE_SIZE = "shared_memory_byte_size"


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer of a server's tensors: the regions, and their bounds."""

    regions: SharedMemoryRegions
    max_message_bytes: int
    max_strings: int = 2**17  # of one input


def place_of(tensor: Tensor, regions: SharedMemoryRegions) -> Place | None:
    """A tensor's place by its parameters; None if it is in the message."""
    if not tensor.parameters:
        return None
    name = _parameter(tensor, REGION, "string_param")
    offset = _parameter(tensor, _OFFSET, "int64_param")
    byte_size = _parameter(tensor, _BYTE_SIZE, "int64_param")
    if name is None:
        return None
    if byte_size is None:
        raise InvalidArgument(
            f"'{_BYTE_SIZE}' must be specified along with '{REGION}' parameter "
            f"for tensor '{tensor.name}'"
        )
    return regions.place(name, offset or 0, byte_size)


def shared_bytes(request: pb.ModelInferRequest) -> int:
    """The inputs in shared memory, copied; the request has been checked."""
    sizes = [
        tensor.parameters[_BYTE_SIZE].int64_param
        for tensor in request.inputs
        if _BYTE_SIZE in tensor.parameters
    ]
    return sum(sizes)


def _parameter(tensor: Tensor, key: str, kind: str) -> Any:  # noqa: ANN401 - as `kind` says
    if key not in tensor.parameters:
        return None
    if REGION not in tensor.parameters:
        raise InvalidArgument(
            f"'{key}' can not be specified without '{REGION}' parameter for tensor '{tensor.name}'"
        )
    if tensor.parameters[key].WhichOneof("parameter_choice") != kind:
        raise InvalidArgument(
            f"invalid value type for '{key}' parameter for tensor '{tensor.name}', expected {kind}."
        )
    return getattr(tensor.parameters[key], kind)
