"""Large tensors in a file beside graphs, read once for all sessions that look into them.

Such a file is in ONNX's format for external data: a graph names it, with a place in it for each
tensor. ONNX Runtime would map it for as long as a session lives, and a file that is overwritten
meanwhile would change or end the server (docs/decisions/0026-weights-are-read-not-mapped.md). What
is in a file of weights is packed while a session loads, which maps it for that time only.

Knows nothing of graphs. Written by `export/graphs/files.py`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from service.errors import LoadError

WEIGHTS_SUFFIX, TABLES_SUFFIX = ".weights", ".tables"  # beside model.onnx: model.weights
ALIGNMENT = 64  # bytes, as ONNX Runtime allocates


@dataclass(frozen=True, slots=True, eq=False)
class SharedTables:
    """The bytes of a file, which must outlive the sessions that were given them."""

    name: str
    content: np.ndarray

    @classmethod
    def beside(cls, graph: Path) -> Self | None:
        """Those of a graph; None where it has none. Raises `LoadError`."""
        path = graph.with_suffix(TABLES_SUFFIX)
        try:
            num_bytes = path.stat().st_size
        except OSError:
            return None
        room = np.empty(num_bytes + ALIGNMENT, np.uint8)
        start = -room.ctypes.data % ALIGNMENT
        content = room[start : start + num_bytes]
        try:
            with path.open("rb") as file:
                num_read = file.readinto(content.data)
        except OSError as error:
            raise LoadError(f"{path.name} cannot be read: {error.strerror}") from error
        if num_read != num_bytes:
            raise LoadError(f"{path.name} became shorter while it was read")
        return cls(path.name, content)

    def give_to(self, ort_options: Any) -> None:  # noqa: ANN401 - the library has no types
        """Let a session that is made with these options look into them."""
        ort_options.add_session_config_entry(
            "session.use_external_initializer_file_buffers_directly", "1"
        )
        ort_options.add_external_initializers_from_files_in_memory(
            [self.name], [self.content], [self.content.nbytes]
        )
