"""A hub's repository as a folder whose weights are not fetched: small files, headers and sizes.

A file that is not here has the size that the hub states, and no contents: it takes no room on the
disk. Of weights in safetensors the header is there. So all that plans by names, sizes, types and
shapes does so before 16 GB are fetched.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from models.checkpoints.file_names import PICKLED_FILE, WEIGHTS_FILE
from models.checkpoints.headers import parts_of
from models.checkpoints.hub import FORMS, Repository, fetch_small_files, modules_of

MAX_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Outline:
    """A folder for as long as it is needed, and where its contents will be."""

    folder: Path
    snapshot: Path  # in the hub's cache

    def num_missing_bytes(self, names: Iterable[str]) -> int:
        """Bytes of those of the files that are not fetched."""
        paths = [self.folder / name for name in names]
        return sum(path.stat().st_size for path in paths if not path.is_symlink())


@contextmanager
def outlined(hub_id: str, revision: str | None = None) -> Iterator[Outline | None]:
    """The outline of a repository; None where the hub does not say enough.

    Raises `CheckpointError` where there is no such repository.
    """
    source = Repository(hub_id, None, revision)
    snapshot = fetch_small_files(source)
    sizes = source.sizes()
    with tempfile.TemporaryDirectory(prefix="attendant-outline-") as scratch:
        folder = Path(scratch) / hub_id.rpartition("/")[2]
        folder.mkdir()
        for name, num_bytes in [*sizes.items()][:MAX_FILES]:
            place = PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts:
                continue
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if (snapshot / name).is_file():
                (folder / name).symlink_to(snapshot / name)
            else:
                with (folder / name).open("wb") as file:
                    file.truncate(num_bytes)
        unread = [name for name in _weights(folder) if not (folder / name).is_symlink()]
        headers = {name: source.header(name) for name in unread}
        for name, header in headers.items():
            _write_header(folder / name, header)
        yield Outline(folder, snapshot) if sizes and all(headers.values()) else None


def _weights(folder: Path) -> list[str]:
    """The files of safetensors that an import reads."""
    names: list[str] = []
    for module in ("", *modules_of(folder)):
        for whole, index in FORMS:
            if whole != PICKLED_FILE and (folder / module / whole).is_file():
                names.append(str(PurePosixPath(module, whole)))
            elif whole == WEIGHTS_FILE and (folder / module / index).is_file():
                parts = parts_of(folder / module / index)
                names += [str(PurePosixPath(module, part)) for part in parts]
    return [name for name in dict.fromkeys(names) if (folder / name).is_file()]


def _write_header(path: Path, header: Mapping[str, Any]) -> None:
    text = json.dumps(header).encode()
    with path.open("r+b") as file:
        file.write(len(text).to_bytes(8, "little") + text)
