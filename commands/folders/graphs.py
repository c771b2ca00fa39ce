"""A graph of a folder as it is opened: its nodes, and the files of its external data.

Imports no PyTorch.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from onnx import ModelProto

from export.adopted.files import read_graph, take_data
from export.graphs.files import link_file
from models.checkpoints.folder_plan import Plan


@dataclass(frozen=True, slots=True)
class OpenedGraph:
    """A graph without its external data, and the files that have these, by their new names."""

    model: ModelProto
    data: Mapping[str, Path]

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """The graph of a plan. Raises `ExportError`."""
        path = plan.folder / plan.graph
        model = read_graph(path, plan.folder)
        return cls(model, take_data(model, path, plan.folder))

    def copy_data(self, target: Path, *, is_linked: bool = False) -> list[Path]:
        """The files of external data in a folder: copies, or other names of the same files."""
        place = link_file if is_linked else shutil.copyfile
        for name, file in self.data.items():
            place(file.resolve(), target / name)
        return [target / name for name in self.data]
