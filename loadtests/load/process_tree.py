"""Memory of a process and of all that descend from it, sampled while they run.

Private memory is of pages that no other process has; pages of mapped files, which the system can
take back, are resident and not private once they are clean and shared with the cache of files.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

INTERVAL_S = 0.1
PROC = Path("/proc")
MIB = 2**20
PRIVATE = ("Private_Clean", "Private_Dirty")


@dataclass(slots=True)
class Peak:
    """The largest sums that were seen, in MiB."""

    private_mib: float = 0.0
    resident_mib: float = 0.0
    anonymous_mib: float = 0.0

    def see(self, root: int) -> None:
        """Take a sample of the tree below a process."""
        sums = {"Private": 0, "Rss": 0, "Anonymous": 0}
        for process in tree_of(root):
            for name, value in _memory_of(process).items():
                key = "Private" if name in PRIVATE else name
                if key in sums:
                    sums[key] += value
        self.private_mib = max(self.private_mib, sums["Private"] / MIB)
        self.resident_mib = max(self.resident_mib, sums["Rss"] / MIB)
        self.anonymous_mib = max(self.anonymous_mib, sums["Anonymous"] / MIB)


def tree_of(root: int) -> list[int]:
    """A process and its descendants that run now."""
    children: dict[int, list[int]] = {}
    for path in PROC.glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(path.name))
    tree = [root]
    for process in tree:
        tree += children.get(process, [])
    return tree


def processor_seconds(root: int) -> float:
    """Time that a process and its ended children have computed."""
    fields = (PROC / str(root) / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _memory_of(process: int) -> dict[str, int]:
    """Bytes by the names of `smaps_rollup`; none of a process that ended."""
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    parts = (line.split() for line in lines)
    return {part[0].rstrip(":"): int(part[1]) * 1024 for part in parts if len(part) == 3}


@contextmanager
def watching(root: int) -> Iterator[Peak]:
    """While entered, the peak of a tree grows."""
    peak, ended = Peak(), threading.Event()

    def watch() -> None:
        while True:
            peak.see(root)
            if ended.wait(INTERVAL_S):
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
