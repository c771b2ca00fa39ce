"""Every server, declared as `loadtests/compare/peers.py` declares engines."""

from collections.abc import Mapping, Sequence

from loadtests.compare.peer import Peer
from loadtests.compare.traffic import Traffic

SERVERS: tuple[Peer, ...] = ()
SERVER_TRAFFIC: tuple[Traffic, ...] = ()


def ours(task: str, precisions: Sequence[str] | None, settings: Mapping[str, object]) -> list[Peer]:
    """Our server at these precisions of `attendant export`."""
    return []
