"""A hub id gives every file that a folder needs, from a hub on loopback; and weights in parts."""

import json
import tempfile
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.graph_files import GraphWish
from models.checkpoints.hub import download_folder
from models.errors import CheckpointError
from tests.checkpoints.fields import network
from tests.fakes.hub import fake_hub
from tests.models.tiny import word_tokenizer

NAME = "somebody/embedder"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def write(folder: Path, kind: str = "bert", head: Any = transformers.AutoModel) -> Path:
    network(kind, head).save_pretrained(folder)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def add_modules(folder: Path, *, encoder: str = "") -> None:
    """An embedder whose encoder may be in a folder of its own, with a Dense behind its pooling."""
    places = {"Transformer": encoder, "Pooling": "1_Pooling", "Dense": "2_Dense"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(places.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for place, values in (
        ("1_Pooling", {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}),
        ("2_Dense", {"in_features": 24, "out_features": 6, "bias": True}),
    ):
        (folder / place).mkdir()
        (folder / place / "config.json").write_text(json.dumps(values))
    torch.manual_seed(5)
    linear = torch.nn.Linear(24, 6)
    save_file(
        {f"linear.{name}": each.detach() for name, each in linear.state_dict().items()},
        folder / "2_Dense" / "model.safetensors",
    )


def split(folder: Path, form: str) -> None:
    """The weights of a folder in two files and an index, in place of one."""
    whole = folder / "model.safetensors"
    tensors = load_file(whole)
    names = sorted(tensors)
    halves = [names[: len(names) // 2], names[len(names) // 2 :]]
    stem, end = ("model", "safetensors") if form == "safetensors" else ("pytorch_model", "bin")
    index: dict[str, str] = {}
    for place, half in enumerate(halves, start=1):
        part = f"{stem}-{place:05}-of-00002.{end}"
        tensors_of_part = {name: tensors[name].contiguous() for name in half}
        if form == "safetensors":
            save_file(tensors_of_part, folder / part)
        else:
            torch.save(tensors_of_part, folder / part)
        index |= dict.fromkeys(half, part)
    path = folder / f"{stem}.{end}.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": index}))
    whole.unlink()


def state(source: str | Path) -> dict[str, Tensor]:
    return load_checkpoint(source).model.state_dict()


def is_equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


@pytest.mark.parametrize("encoder", ["", "0_Transformer"])
@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_a_hub_id_fetches_dense_layers_and_weights_in_two_files(
    form: str, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else: neither graphs nor weights in another form."""
    folder = tmp_path / "hub"
    write(folder / encoder)
    add_modules(folder, encoder=encoder)
    split(folder / encoder, form)
    (folder / "sentence_roberta_config.json").write_text('{"max_seq_length": 16}')
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"graph")
    (folder / "tf_model.h5").write_bytes(b"other")
    expected = state(folder)
    with fake_hub(NAME, folder) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        checkpoint = load_checkpoint(NAME)
    assert checkpoint.origin == NAME
    assert is_equal(checkpoint.model.state_dict(), expected)
    left = set(hub.files()) - set(hub.fetched)
    assert left == {"onnx/model.onnx", "tf_model.h5"}
    assert len(hub.fetched) == len(set(hub.fetched)), "no file is fetched twice"


def test_of_two_forms_of_weights_one_is_fetched(tmp_path: Path) -> None:
    folder = write(tmp_path / "hub")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    with fake_hub(NAME, folder) as hub:
        download_folder(NAME, hub.url)
    assert "model.safetensors" in hub.fetched
    assert "pytorch_model.bin" not in hub.fetched


def test_an_adapters_files_are_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with fake_hub(NAME, folder) as hub:
        downloaded = download_folder(NAME, hub.url)
    assert (downloaded / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("path", ["../secrets", "/etc", "a/../../b", "*"])
def test_modules_outside_of_the_repository_are_refused(path: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "hub")
    (folder / "modules.json").write_text(json.dumps([{"type": "a", "path": path}]))
    with (
        fake_hub(NAME, folder) as hub,
        pytest.raises(CheckpointError, match=r"is no folder of the repository"),
    ):
        download_folder(NAME, hub.url)


@pytest.mark.parametrize("form", ["safetensors", "bin"])
@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2", "llama"])
def test_weights_in_several_files_are_those_of_one(kind: str, form: str, tmp_path: Path) -> None:
    writes: Any = transformers.AutoModelForCausalLM
    head: Any = transformers.AutoModel if kind in ("bert", "roberta") else writes
    folder = write(tmp_path, kind, head)
    expected = state(folder)
    split(folder, form)
    assert is_equal(state(folder), expected)


def test_a_missing_part_and_a_weight_in_two_parts_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path)
    split(folder, "safetensors")
    first, second = sorted(folder.glob("model-*.safetensors"))
    tensors, others = load_file(first), load_file(second)
    name = next(iter(others))
    save_file({**tensors, name: others[name]}, first)
    with pytest.raises(CheckpointError, match=r"is in model-00002-of-00002\.safetensors and in"):
        load_checkpoint(folder)
    second.unlink()
    with pytest.raises(CheckpointError, match=r"00002-of-00002.safetensors is missing, which"):
        load_checkpoint(folder)


def test_of_graphs_alone_the_one_that_is_meant_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside weights none is, unless a variant is named, or PyTorch is missing."""
    names = ["model.onnx", "model.onnx_data", "model_q4.onnx"]
    for name in ("config.json", "tokenizer.json", *(f"onnx/{each}" for each in names)):
        (tmp_path / "Mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "Mine" / name).write_text(json.dumps({"model_type": name}))

    def fetched(wish: GraphWish | None) -> set[str]:
        cache = tempfile.mkdtemp(dir=tmp_path)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", cache)
        with fake_hub("owner/Mine", tmp_path / "Mine") as hub:
            download_folder("owner/Mine", hub.url, wish=wish)
            return {name for name in hub.fetched if name.endswith(("onnx", "data", "tensors"))}

    assert fetched(None) == set()
    assert fetched(GraphWish()) == {"onnx/model.onnx", "onnx/model.onnx_data"}
    assert fetched(GraphWish("q4")) == {"onnx/model_q4.onnx"}
    (tmp_path / "Mine" / "model.safetensors").write_text("weights")
    (tmp_path / "Mine" / "onnx" / "model_fp16.onnx").write_text("in half")
    assert fetched(GraphWish()) == {"model.safetensors"}
    assert fetched(GraphWish("fp16")) == {"onnx/model_fp16.onnx"}
