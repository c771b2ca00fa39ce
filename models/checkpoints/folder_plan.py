"""The record of what a folder is and what becomes of it, and the forms of folders that are taken.

Knows nothing about how it is told. Imports no torch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.checkpoints.folder_files import File
from models.checkpoints.foreign import GRAPHS
from models.checkpoints.gguf.files import SUFFIX
from models.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of folder that is taken: how it is told, and what is imported to read it."""

    name: str
    what: str  # behind "a folder"
    needs: tuple[str, ...]  # libraries of the first start


OWN = Form("attendant", "of Attendant's own checkpoint", ("torch", "onnxscript"))
TRANSFORMERS = Form("transformers", "of transformers", ("torch", "onnxscript"))
TRACED = Form(
    "traced",
    "of transformers, whose own network is traced",
    ("torch", "onnxscript", "transformers"),
)
EMBEDDER = Form("sentence-transformers", "of sentence-transformers", ("torch", "onnxscript"))
REPOSITORY = Form("repository", "of served models: a model repository", ())
GGUF = Form("gguf", "of GGUF", ("torch", "onnxscript", "gguf"))
ONNX = Form("onnx", GRAPHS.what, ("onnx",))
ADAPTER = Form("adapter", "of an adapter of PEFT, which is served beside its base", ())
FORMS = (REPOSITORY, ADAPTER, OWN, EMBEDDER, TRANSFORMERS, TRACED, GGUF, ONNX)


@dataclass(frozen=True, slots=True)
class Plan:
    """Kind of a folder and what becomes of it; `refusal` is empty where it can be taken."""

    folder: Path
    form: str = ""  # `Form.name`, or empty where none was told
    what: str = ""
    needs: tuple[str, ...] = ()
    model_type: str = ""
    architecture: str = ""
    task: str = ""  # as the folder declares it
    num_weights: int = 0
    num_in_tables: int = 0  # of these, in tables of words
    is_tied: bool = False  # whether the output layer is the table of words
    stored_as: Mapping[str, int] = field(default_factory=dict)  # weights by their type
    kept: tuple[str, ...] = ()  # types that the CPU computes with as they are stored
    num_bytes: int = 0  # of the files of weights
    taken: tuple[File, ...] = ()
    left_out: tuple[File, ...] = ()
    refusal: str = ""
    way_out: str = ""
    commands: tuple[str, ...] = ()  # for a shell, where they are not those of every form
    graph: str = ""  # the file that is served, of a folder of graphs
    precision: str = ""  # of that graph, as its name says
    variants: tuple[str, ...] = ()  # names of the others
    base: str = ""  # of an adapter, as its files name it
    beside: str = ""  # what becomes of graphs beside weights that are taken, for people

    @property
    def name(self) -> str:
        """The name under which the folder is served unless another is given."""
        return name_of(self.folder.resolve().name)

    def check(self) -> None:
        """Raise `CheckpointError` where the folder cannot be taken."""
        if self.refusal:
            raise CheckpointError(": ".join(filter(None, (self.refusal, self.way_out))))


def name_of(source: str) -> str:
    """The last part of a path or hub id as a model's name: lower case, of few characters."""
    last = source.rstrip("/").rpartition("/")[2].lower().removesuffix(SUFFIX)
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip(".-") or "model"
