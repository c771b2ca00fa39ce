"""A bound on the metadata that gRPC makes Python objects of, for one call.

gRPC refuses a call whose headers are whole and too large. Of a call that is cut off amid its
headers it hands out what came, however much: half a million pairs after 7 MB of CONTINUATION
frames, each of which its Cython code makes a tuple on the event loop, where nothing else goes on.
That code calls one class by name, `cygrpc._Metadatum`, which is replaced by a function that counts.
A call beyond the bound ends as one whose client has left, which it is. Where a later gRPC has
no such class, nothing is replaced, and a test says so. Lives on the event loop.
"""

import asyncio
from typing import Any

from grpc._cython import cygrpc  # type: ignore[attr-defined] # compiled

NAME = "_Metadatum"
PAIR_BYTES = 32  # of a pair beside its texts, as HTTP/2 counts (RFC 9113, 10.5.1)
# Beyond what gRPC takes of a whole call (`MAX_METADATA_BYTES`) by far, and made in milliseconds.
MAX_BYTES = 2**20


class MetadataBound:
    """Counts the bytes of metadata since the last call, or the last turn of the event loop.

    Clients on other threads of this process are not counted.
    """

    def __init__(self, make: Any) -> None:  # noqa: ANN401 - a class without a type
        self._make = make
        self._num_bytes = 0
        self.num_cut_off = 0  # calls

    def begin(self) -> None:
        """Count from zero."""
        self._num_bytes = 0

    def __call__(self, key: str, value: str | bytes) -> Any:  # noqa: ANN401 - a named tuple
        if not self._num_bytes:
            try:
                asyncio.get_running_loop().call_soon(self.begin)
            except RuntimeError:  # not on an event loop
                return self._make(key, value)
        self._num_bytes += PAIR_BYTES + len(key) + len(value)
        if self._num_bytes > MAX_BYTES:
            self._num_bytes = 0
            self.num_cut_off += 1
            raise asyncio.CancelledError("a call has more metadata than any may have")
        return self._make(key, value)


def metadata_bound() -> MetadataBound:
    """The bound of this process, which is in place from now on."""
    made = getattr(cygrpc, NAME, None)
    if isinstance(made, MetadataBound):
        return made
    bound = MetadataBound(made)
    if made is not None:
        setattr(cygrpc, NAME, bound)
    return bound
