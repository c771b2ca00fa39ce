"""The folder that a server opens: a shared model, with the tokenizer that gives ids back.

Large files are linked, never copied. Three shapes: a repository as ours exports it; the graph out
of one, for servers of ONNX; a Hugging Face folder, for those of PyTorch.
"""

import json
import shutil
from pathlib import Path

from loadtests.compare.servers.texts import write_tokenizer

MODEL = "model"  # its name in the repository, and at every server
VERSION = "1"


def repository(exported: Path, target: Path) -> Path:
    """All that the export wrote, so that our server chooses by itself."""
    shutil.copytree(exported, target, copy_function=_link)
    _replace_tokenizer(target / MODEL / VERSION)
    return target


def graph(exported: Path, target: Path) -> Path:
    """model.onnx and its data, for others; what others exported is a folder of them already."""
    version = exported / MODEL / VERSION
    shutil.copytree(version if version.is_dir() else exported, target, copy_function=_link)
    _replace_tokenizer(target)
    return target


def checkpoint(folder: Path, target: Path) -> Path:
    """Configuration and weights for transformers, whose pipelines are to answer logits."""
    target.mkdir(parents=True)
    for name in ("model.safetensors", "tokenizer_config.json"):
        _link(str(folder / name), str(target / name))
    config = json.loads((folder / "config.json").read_text()) | {"problem_type": "regression"}
    (target / "config.json").write_text(json.dumps(config))
    write_tokenizer(target / "tokenizer.json")
    return target


def _replace_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.unlink(missing_ok=True)  # a link: writing would change the export
    write_tokenizer(path)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
