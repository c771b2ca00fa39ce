"""Large tensors in files beside graphs, opened once for all sessions that share them.

The files are in ONNX's format for external data: a graph names them, with a place in them for each
tensor. ONNX Runtime would map both for as long as a session lives, and a file that is overwritten
meanwhile would change or end the server:
docs/explanation/decisions/0026-weights-are-read-not-mapped.md. So what sessions look into is read
here, once. What they only pack while they load is mapped, and nothing reads it afterwards.

Knows nothing of graphs. Written by `export/graphs/files.py`.
"""

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from service.errors import LoadError

WEIGHTS_SUFFIX, TABLES_SUFFIX = ".onnx.weights", ".onnx.tables"  # beside model.onnx
ALIGNMENT = 64  # bytes, as ONNX Runtime allocates


@dataclass(frozen=True, slots=True, eq=False)
class SharedWeights:
    """The contents of files by name, which must outlive the sessions that were given them."""

    contents: dict[str, np.ndarray]
    packed: mmap.mmap | None  # of a file that sessions read only while they load

    @classmethod
    def beside(cls, graph: Path) -> Self | None:
        """Weights beside a graph; None where it has none. Raises `LoadError`."""
        weights, tables = (graph.with_suffix(end) for end in (WEIGHTS_SUFFIX, TABLES_SUFFIX))
        contents: dict[str, np.ndarray] = {}
        packed: mmap.mmap | None = None
        for path in (weights, tables):
            try:
                if path is weights and path.is_file():
                    packed = _mapped(path)
                    contents[path.name] = np.frombuffer(packed, np.uint8)
                elif path.is_file():
                    contents[path.name] = _read(path)
            except (OSError, ValueError) as error:  # a ValueError is of an empty file
                raise LoadError(f"{path.name} cannot be read: {error}") from error
        return cls(contents, packed) if contents else None

    def give_to(self, ort_options: Any) -> None:  # noqa: ANN401 - the library has no types
        """Let a session that is made with these options look into them."""
        ort_options.add_session_config_entry(
            "session.use_external_initializer_file_buffers_directly", "1"
        )
        ort_options.add_external_initializers_from_files_in_memory(
            list(self.contents),
            list(self.contents.values()),
            [content.nbytes for content in self.contents.values()],
        )

    def release(self) -> None:
        """Give the memory of what was packed back to the system."""
        if self.packed is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.packed.madvise(mmap.MADV_DONTNEED)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _read(path: Path) -> np.ndarray:
    num_bytes = path.stat().st_size
    room = np.empty(num_bytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    content = room[start : start + num_bytes]
    with path.open("rb") as file:
        if file.readinto(content.data) != num_bytes:
            raise OSError("it became shorter while it was read")
    return content
