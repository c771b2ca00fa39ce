"""Models that are built beside the server, as the process that builds them says it, for the page.

The builder keeps a file in the model repository and renews its time every second. A file that was
not renewed for `STALE_S` is of a builder that has ended, and says nothing.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FILE = ".building.json"
STALE_S = 30.0
MOST_BYTES = 65_536
MOST_SHARE = 0.99  # of a build that takes longer than expected

Planned = tuple[str, Sequence[str], float]  # name, its models, expected seconds


def file_of(began_s: float, planned: Sequence[Planned]) -> str:
    """The file's content: the build that began at this time of the wall clock, and the next."""
    return json.dumps({"began": began_s, "planned": planned})


def builds_in(repository: Path, now_s: float) -> list[dict[str, Any]]:
    """Name, models, share done and seconds left of each build, the running one first."""
    path = repository / FILE
    try:
        stat = path.stat()
        if now_s - stat.st_mtime > STALE_S or stat.st_size > MOST_BYTES:
            return []
        told = json.loads(path.read_bytes())
        return _builds(told["planned"], now_s - told["began"])
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _builds(planned: Sequence[Planned], elapsed_s: float) -> list[dict[str, Any]]:
    builds: list[dict[str, Any]] = []
    until_s = -elapsed_s
    for name, models, expected_s in planned:
        until_s += expected_s
        if not builds:  # the one that runs; it ends soon where it should have ended before
            share = min(max(elapsed_s / expected_s, 0.0), MOST_SHARE)
            until_s = max(until_s, expected_s * (1 - MOST_SHARE))
        else:
            share = 0.0
        builds.append(
            {"name": name, "models": list(models), "share": share, "left_seconds": until_s}
        )
    return builds
