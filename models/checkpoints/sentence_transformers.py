"""Read how a sentence-transformers folder turns hidden states into one vector.

Knows nothing about weights. Such a folder lists its steps in modules.json; an encoder, then mean or
CLS pooling, then optionally a normalisation are what a TextEmbedder can do, and any other step is
refused by name.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from models.checkpoints.llama import ELSEWHERE
from models.errors import CheckpointError
from models.json_files import fields_of, read_json, read_object

MODULES_FILE = "modules.json"
POOLING_FLAGS = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


@dataclass(frozen=True, slots=True)
class EmbedderFolder:
    """The encoder's folder, and the pooling of its last hidden states."""

    encoder: Path
    pooling: str = "mean"  # of a plain encoder too: better than CLS where nothing was trained
    normalize: bool = False
    is_declared: bool = False  # modules.json says that this is an embedder

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The folder by its modules.json; without one it is a plain encoder."""
        path = folder / MODULES_FILE
        if not path.is_file():
            return cls(folder)
        modules = read_json(path)
        if not isinstance(modules, list):
            raise CheckpointError(f"{path} must hold a list of modules")
        steps: dict[str, Path] = {}
        for module in modules:
            with fields_of(path, module) as values:
                steps[str(values["type"]).rpartition(".")[2]] = folder / str(values["path"])
        if list(steps) not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
            raise CheckpointError(
                f"{path} lists {', '.join(steps)}, but only Transformer, Pooling and then "
                "optionally Normalize are supported"
            )
        pooling = read_pooling(steps["Pooling"] / "config.json")
        return cls(steps["Transformer"], pooling, "Normalize" in steps, is_declared=True)


def read_pooling(path: Path) -> str:
    """Return the pooling named by `pooling_mode`, or by the one true flag of older folders."""
    values = read_object(path)
    if "pooling_mode" in values:
        chosen = [str(values["pooling_mode"])]
    else:
        flags = [name for name in values if name.startswith("pooling_mode_") and values[name]]
        chosen = [POOLING_FLAGS.get(name, name) for name in flags]
    if len(chosen) != 1 or chosen[0] not in POOLING_FLAGS.values():
        raise CheckpointError(
            f"{path} asks for {' and '.join(chosen) or 'no pooling'}, "
            f"but only mean or cls alone is supported: {ELSEWHERE}"
        )
    return chosen[0]


def max_sequence(folder: Path) -> int | None:
    """Return `max_seq_length` in tokens, where the folder declares it."""
    path = folder / "sentence_bert_config.json"
    with fields_of(path, read_object(path, optional=True)) as values:
        declared = values.get("max_seq_length")
        return None if declared is None else int(declared)
