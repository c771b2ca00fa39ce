"""Our own folder: nothing is lost, nothing is half written, and every fault has a name."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointError,
    check_replaceable,
    load_checkpoint,
    save_checkpoint,
)
from models.checkpoints.hub import download_folder
from models.errors import OutputError, SettingError
from models.networks.gpt import GPT
from models.networks.heads import TextEmbedder

UNREACHABLE = "http://127.0.0.1:9"  # the discard port: connections are refused at once


def assert_same(found: Checkpoint, expected: Checkpoint) -> None:
    found_state, expected_state = found.model.state_dict(), expected.model.state_dict()
    assert found_state.keys() == expected_state.keys()
    assert all(torch.equal(found_state[name], expected_state[name]) for name in found_state)
    assert found.tokenizer.to_str() == expected.tokenizer.to_str()
    for field in ("task", "labels", "max_tokens", "origin", "metrics"):
        assert getattr(found, field) == getattr(expected, field)


def test_a_classifier_survives_its_folder(
    classifier_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(classifier_checkpoint, tmp_path / "spam")
    loaded = load_checkpoint(str(tmp_path / "spam"))
    assert_same(loaded, classifier_checkpoint)
    assert not loaded.model.training
    input_ids = torch.randint(0, 32, (2, 6))
    mask = torch.ones_like(input_ids)
    assert torch.equal(loaded.model(input_ids, mask), classifier_checkpoint.model(input_ids, mask))


def test_an_embedder_survives_its_folder(embedder_checkpoint: Checkpoint, tmp_path: Path) -> None:
    save_checkpoint(embedder_checkpoint, tmp_path / "embedder")
    loaded = load_checkpoint(tmp_path / "embedder")
    assert_same(loaded, embedder_checkpoint)
    assert isinstance(loaded.model, TextEmbedder)
    assert (loaded.model.pooling, loaded.model.layers) == ("mean", "last")
    assert loaded.model.normalize


def test_a_gpt_survives_its_folder(gpt_checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Its configuration has a decoder, and neither labels, encoder nor head."""
    save_checkpoint(gpt_checkpoint, tmp_path / "gpt")
    loaded = load_checkpoint(tmp_path / "gpt")
    assert_same(loaded, gpt_checkpoint)
    assert isinstance(loaded.model, GPT)
    assert loaded.model.config == gpt_checkpoint.model.config
    values = json.loads((tmp_path / "gpt" / "config.json").read_text())
    assert values.keys() == {
        *("format", "task", "network", "origin", "max_tokens", "decoder", "metrics"),
        "weights_sha256",
    }
    input_ids = torch.randint(0, 32, (2, 6))
    assert torch.equal(loaded.model(input_ids), gpt_checkpoint.model(input_ids))


@pytest.mark.parametrize("name", ["classifier", "embedder", "gpt"])
def test_a_folder_of_before_networks_had_names_is_read_as_it_was(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It names a task only, and an embedder has labels, which are none."""
    checkpoint: Checkpoint = request.getfixturevalue(f"{name}_checkpoint")
    save_checkpoint(checkpoint, tmp_path / "old")
    path = tmp_path / "old" / "config.json"
    values = json.loads(path.read_text())
    del values["network"]
    if name == "embedder":
        values["labels"] = []
    path.write_text(json.dumps(values))
    loaded = load_checkpoint(tmp_path / "old")
    assert_same(loaded, checkpoint)
    assert type(loaded.model) is type(checkpoint.model)


def test_a_checkpoint_without_an_encoder_says_so_where_one_is_needed(
    gpt_checkpoint: Checkpoint, embedder_checkpoint: Checkpoint
) -> None:
    assert embedder_checkpoint.encoder_model is embedder_checkpoint.model
    with pytest.raises(CheckpointError, match="tiny: task is 'text-generation', but this needs an"):
        _ = gpt_checkpoint.encoder_model


def test_the_same_checkpoint_gives_the_same_bytes(
    classifier_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(classifier_checkpoint, tmp_path / "one")
    save_checkpoint(load_checkpoint(tmp_path / "one"), tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


class FailingReports(Mapping[str, bytes]):
    """Breaks off in the middle of a save."""

    def __getitem__(self, name: str) -> bytes:
        raise OSError("no space left on device")

    def __iter__(self) -> Iterator[str]:
        return iter(["training.json"])

    def __len__(self) -> int:
        return 1


def test_a_save_that_fails_leaves_the_old_checkpoint_and_nothing_else(
    classifier_checkpoint: Checkpoint, embedder_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    save_checkpoint(embedder_checkpoint, folder, {"loss.png": b"picture"})
    with pytest.raises(OutputError, match="no space"):
        save_checkpoint(classifier_checkpoint, folder, FailingReports())
    assert_same(load_checkpoint(folder), embedder_checkpoint)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]

    save_checkpoint(classifier_checkpoint, folder)
    assert_same(load_checkpoint(folder), classifier_checkpoint)
    assert not (folder / "loss.png").exists()


def test_a_folder_with_other_files_is_never_replaced(
    embedder_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"thesis\.tex"):
        save_checkpoint(embedder_checkpoint, tmp_path)
    with pytest.raises(CheckpointError, match="is a file"):
        save_checkpoint(embedder_checkpoint, tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(
    embedder_checkpoint: Checkpoint, tmp_path: Path, name: str
) -> None:
    save_checkpoint(embedder_checkpoint, tmp_path / "model")
    (tmp_path / "model" / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        load_checkpoint(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("config.json", "is not JSON"),
        ("model.safetensors", "not a readable safetensors file"),
        ("tokenizer.json", "not in the format of `tokenizers`"),
    ],
)
def test_a_damaged_file_is_named(
    embedder_checkpoint: Checkpoint, tmp_path: Path, name: str, fault: str
) -> None:
    save_checkpoint(embedder_checkpoint, tmp_path / "model")
    path = tmp_path / "model" / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=fault) as caught:
        load_checkpoint(tmp_path / "model")
    assert str(path) in str(caught.value)


def test_weights_that_changed_on_the_way_are_refused_with_both_checksums(
    classifier_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """One bit of one weight; a folder of before checksums has none, and is read as it is."""
    save_checkpoint(classifier_checkpoint, tmp_path / "model")
    weights, config = (tmp_path / "model" / name for name in ("model.safetensors", "config.json"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    values = json.loads(config.read_text())
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path / "model")
    found = hashlib.sha256(content).hexdigest()
    assert f"{weights} has the SHA-256 {found}" in str(caught.value)
    assert f"{config} says {values['weights_sha256']}" in str(caught.value)
    del values["weights_sha256"]
    config.write_text(json.dumps(values))
    load_checkpoint(tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "translation"}, "task is 'translation', but must be one of text-classification"),
        ({"labels": ["ham", "ham"]}, "labels is ('ham', 'ham'), but must be 2 different names"),
        ({"max_tokens": 21}, "max_tokens is 21, but must be from 1 to 20"),
        ({"head": {"pooling": "median"}}, "pooling is 'median', but must be one of mean, cls"),
        ({"head": {"colour": "red"}}, "wrong type"),
        ({"encoder": {}}, "must be given"),
        ({"task": "text-generation", "network": "gpt"}, "has no field 'decoder'"),
        ({"network": "gpt"}, "network is 'gpt', but must be one of encoder-classifier"),
    ],
)
def test_a_wrong_field_is_named(
    classifier_checkpoint: Checkpoint, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    save_checkpoint(classifier_checkpoint, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path / "model")
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_missing_and_unexpected_weights_of_our_own_are_named(
    embedder_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(embedder_checkpoint, tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    tensors["encoder.extra"] = tensors.pop("encoder.embeddings.norm.bias").clone()
    save_file(tensors, path)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path / "model")
    assert "1 missing: encoder.embeddings.norm.bias" in str(caught.value)
    assert "1 unexpected: encoder.extra" in str(caught.value)


def test_parts_that_do_not_fit_together_are_refused(
    classifier_checkpoint: Checkpoint, gpt_checkpoint: Checkpoint
) -> None:
    with pytest.raises(SettingError, match="2 different names"):
        replace(classifier_checkpoint, labels=("spam",))
    with pytest.raises(SettingError, match="'text-classification' for a SequenceClassifier"):
        replace(classifier_checkpoint, task="embedding")
    with pytest.raises(SettingError, match="'text-generation' for a GPT"):
        replace(gpt_checkpoint, task="embedding")
    with pytest.raises(SettingError, match=r"labels is .*, but must be 0 different names"):
        replace(gpt_checkpoint, labels=("a", "b"))


def test_neither_a_folder_nor_a_hub_id_is_said_to_be_so() -> None:
    with pytest.raises(
        CheckpointError, match=r"no folder '\./nowhere/at/all', and it is no hub id"
    ):
        load_checkpoint("./nowhere/at/all")


def test_without_a_network_a_hub_id_says_what_to_do() -> None:
    with pytest.raises(CheckpointError, match="no folder 'nobody/nothing', and the hub cannot be"):
        download_folder("nobody/nothing", endpoint=UNREACHABLE)


def test_a_folder_that_cannot_be_written_is_refused_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest folder that exists decides, a file in its place is none, and one's rights."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(CheckpointError, match=f"cannot be written: {file} is no writable folder"):
        check_replaceable(file / "model")
    check_replaceable(tmp_path / "new" / "model")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    with pytest.raises(CheckpointError, match=f"cannot be written: {tmp_path} is no writable"):
        check_replaceable(tmp_path / "new" / "model")
