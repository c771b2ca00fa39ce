"""A folder without a whole model says what is missing, and where to get it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.headers import read_headers
from models.checkpoints.plan import recognise
from models.checkpoints.whole import POINTER, like_it
from models.errors import CheckpointError

CONFIG = json.dumps({"model_type": "bert", "architectures": ["BertModel"]})
WEIGHTS = {"a": torch.ones(1000)}


def write(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".safetensors":
            save_file(WEIGHTS, path)
        else:
            path.write_text(CONFIG if path.suffix == ".json" else "read me")
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ((), "is empty: give the folder of a model's files"),
        (("README.md",), r"has README\.md, and neither config\.json nor weights"),
        (("config.json",), r"has config\.json and no weights \(model\.safetensors, "),
        (("model.safetensors",), r"has model\.safetensors and no config\.json, which says what"),
        (
            ("README.md", "model-00001-of-00002.safetensors"),
            r"has model-00001-of-00002\.safetensors and no config\.json",
        ),
        (
            ("a b/config.json", "a b/model.safetensors", "c/x.gguf", "d/README.md"),
            r"no model itself, and its folders have: attendant serve '.*/a b' .*/c$",
        ),
    ],
)
def test_a_folder_without_a_network_says_what_it_has(
    names: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "mine", *names)
    with pytest.raises(CheckpointError, match=why):
        recognise(folder).check()
    with pytest.raises(CheckpointError, match=why):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "x.gguf", "model.onnx"])
def test_a_file_that_git_lfs_has_not_fetched_is_told(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, "config.json")
    (folder / name).write_bytes(POINTER + b"v1\noid sha256:00\nsize 90868376\n")
    why = rf"{name} is a pointer of git LFS.* git -C {tmp_path} lfs pull"
    with pytest.raises(CheckpointError, match=why):
        recognise(folder).check()
    if name.endswith(".gguf"):
        with pytest.raises(CheckpointError, match=why):
            recognise(folder / name).check()


def test_pointers_of_files_that_are_not_read_do_not_matter(tmp_path: Path) -> None:
    folder = write(tmp_path, "config.json", "model.safetensors")
    (folder / "flax_model.msgpack").write_bytes(POINTER)
    assert not recognise(folder).refusal


def test_weights_that_end_early_are_told_by_their_header(tmp_path: Path) -> None:
    """As those of a download that was broken off."""
    path = write(tmp_path, "model.safetensors") / "model.safetensors"
    assert read_headers(path)["a"].num_values == 1000
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=rf"{len(whole) - 1:,} of its {len(whole):,} bytes"):
        read_headers(path)


def test_a_path_that_is_not_there_names_the_one_most_like_it(tmp_path: Path) -> None:
    (tmp_path / "sentiment").mkdir()
    assert like_it(str(tmp_path / "sentimnt")) == f" (is it {tmp_path / 'sentiment'}?)"
    assert like_it(str(tmp_path / "other")) == ""
    assert like_it(str(tmp_path / "none/sentiment")) == ""
    with pytest.raises(CheckpointError, match=r"there is no folder .*\(is it .*sentiment\?\)"):
        recognise(tmp_path / "sentimnt").check()
