"""An import says what a folder of another program is, and a way out that was tried."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.foreign import GRAPHS, KINDS
from models.checkpoints.ways_out import MADE_OF
from models.errors import CheckpointError
from tests.checkpoints.fields import network
from tests.models.tiny import word_tokenizer

# Names of files as each program writes them.
FOLDERS: dict[str, tuple[tuple[str, ...], str]] = {
    "of GLiNER": (("gliner_config.json", "pytorch_model.bin"), MADE_OF),
    "of MLC": (("mlc-chat-config.json", "params_shard_0.bin"), MADE_OF),
    "of a pipeline of diffusers": (("model_index.json", "unet/config.json"), "makes images"),
    "of an adapter of PEFT": (
        ("adapter_config.json", "adapter_model.safetensors", "README.md"),
        "attendant serve serves it beside the base that it names",
    ),
    "of an engine of TensorRT": (("rank0.engine", "config.json"), MADE_OF),
    "of CTranslate2": (("model.bin", "config.json", "vocabulary.json"), MADE_OF),
    "of OpenVINO": (("openvino_model.xml", "openvino_model.bin", "config.json"), MADE_OF),
    "of graphs in ONNX": (
        ("config.json", "tokenizer.json", "onnx/model_q4.onnx"),
        "attendant serve",
    ),
    "of TensorFlow": (("config.json", "tf_model.h5", "vocab.txt"), MADE_OF),
    "of Flax": (("config.json", "flax_model.msgpack"), MADE_OF),
    "of rust-bert": (("config.json", "rust_model.ot"), MADE_OF),
    "of TensorFlow Lite": (("model.tflite",), MADE_OF),
    "of Core ML": (("model.mlmodel",), MADE_OF),
    "of MLX": (("config.json", "weights.npz"), MADE_OF),
    "in the form of Meta's": (
        ("consolidated.00.pth", "params.json", "tokenizer.model"),
        "import the files with config.json",
    ),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_a_folder_of_another_program_is_told_with_a_way_out(what: str, tmp_path: Path) -> None:
    names, way_out = FOLDERS[what]
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    assert f"{tmp_path} is a folder {what}" in str(caught.value)
    assert way_out in str(caught.value)
    assert "optimum" not in str(caught.value)


def test_every_kind_of_folder_has_a_row() -> None:
    assert len(FOLDERS) == len(KINDS) + 1
    assert GRAPHS.what in FOLDERS
    assert all(any(kind.what.startswith(what) for what in FOLDERS) for kind in KINDS)


def test_a_file_in_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "tiny.onnx").write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"tiny\.onnx is a graph in ONNX: give attendant serve"
    ):
        load_checkpoint(tmp_path / "tiny.onnx")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is a file: give the folder that it is in"):
        load_checkpoint(tmp_path / "model.safetensors")


def write(folder: Path, kind: str) -> Path:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    classes: Any = transformers.AutoModelForSequenceClassification
    network(kind, classes).save_pretrained(folder)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def test_graphs_beside_weights_are_passed_over(tmp_path: Path) -> None:
    """As most folders on the hub have them; the files of an adapter beside are another matter."""
    folder = write(tmp_path, "bert")
    for name in ("onnx/model.onnx", "openvino/openvino_model.xml", "openvino/openvino_model.bin"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")
    assert load_checkpoint(folder).task == "text-classification"
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"has adapter_model\.safetensors, which may be part"):
        load_checkpoint(folder)


def test_the_way_out_of_setfit_works(tmp_path: Path) -> None:
    folder = write(tmp_path, "bert")
    (folder / "model_head.pkl").write_bytes(b"")
    with pytest.raises(CheckpointError, match="take these files out of the folder"):
        load_checkpoint(folder)
    (folder / "model_head.pkl").unlink()
    assert load_checkpoint(folder).labels


@pytest.mark.parametrize("field", ["quantization_config", "quantization"])
@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_rounded_weights_say_to_import_what_they_were_rounded_from(
    kind: str, field: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, kind)
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), field: {"bits": 4, "quant_method": "gptq"}}
    path.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="import the folder that it was rounded from, and"):
        load_checkpoint(folder)


def test_a_file_is_no_hub_id_though_its_path_could_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "tiny.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match=r"tiny\.gguf is not a readable file of GGUF"):
        load_checkpoint("folder/tiny.gguf")
