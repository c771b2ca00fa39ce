"""An import is compared with the folder's own network, and refused where it differs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from typer.testing import CliRunner

from commands.main import app
from models.checkpoints import certificate
from models.checkpoints.certificate import MAX_DIFFERENCE, Certificate, certify
from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.probe_texts import PROBES
from models.errors import CheckpointError
from tests.checkpoints.fields import network
from tests.checkpoints.rows import ROWS
from tests.checkpoints.spellings import tokenizer
from tests.commands.folders.test_explain import classifier

COMPARED = {
    ("bert", "masks"): "log probabilities",
    ("bert", "answers"): "logits",
    ("qwen3", "embedding"): "hidden states",
    ("t5", "texts"): "log probabilities",
    ("vit", "images"): "logits",
}


@pytest.mark.parametrize(("kind", "head"), COMPARED)
def test_an_import_equals_the_folders_own_network(kind: str, head: str, tmp_path: Path) -> None:
    """Within 1e-4 of the largest output, and in the tokens of all 200 texts."""
    row = next(row for row in ROWS if (row.kind, row.head) == (kind, head))
    row.write(tmp_path / "folder")
    found = certify(load_checkpoint(tmp_path / "folder"), tmp_path / "folder")
    assert (found.outputs, found.why_not) == (COMPARED[kind, head], "")
    assert 0 <= found.max_difference < 1e-4
    assert found.same_tokens == found.texts == (0 if kind == "vit" else len(PROBES))
    assert found.is_equal


def test_a_decoder_that_writes_is_compared(tmp_path: Path) -> None:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    made = network("llama", transformers.AutoModelForCausalLM, vocab_size=600)
    made.save_pretrained(tmp_path)
    tokenizer("gpt2").save(str(tmp_path / "tokenizer.json"))
    found = certify(load_checkpoint(tmp_path), tmp_path)
    assert found.outputs == "log probabilities"
    assert found.max_difference < 1e-5


@pytest.mark.parametrize("wrong", [1.5, float("nan")])
def test_a_network_that_differs_is_refused(wrong: float, tmp_path: Path) -> None:
    folder = classifier(tmp_path)
    checkpoint = load_checkpoint(folder)
    with torch.no_grad():
        next(iter(checkpoint.model.parameters())).mul_(wrong)
    found = certify(checkpoint, folder)
    assert not found.is_equal
    with pytest.raises(CheckpointError, match=r"differs from the folder.s own network: .* logits"):
        found.check()


def test_other_tokens_are_refused_with_the_first_text(tmp_path: Path) -> None:
    folder = classifier(tmp_path)
    checkpoint = load_checkpoint(folder)
    checkpoint.tokenizer.add_special_tokens(["quick"])
    found = certify(checkpoint, folder)
    assert found.same_tokens < found.texts
    assert "quick brown fox" in found.first_difference
    with pytest.raises(CheckpointError, match="the first text is 'The quick brown fox"):
        found.check()


def test_a_difference_is_accepted_on_request_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = classifier(tmp_path / "folder"), tmp_path / "out"
    monkeypatch.setattr(certificate, "MAX_DIFFERENCE", -1.0)
    refused = CliRunner().invoke(app, ["import", str(folder), str(out)])
    assert refused.exit_code == 1
    assert "--compare accept goes on" in refused.output
    assert not out.exists()
    accepted = CliRunner().invoke(app, ["import", str(folder), str(out), "--compare", "accept"])
    assert accepted.exit_code == 0
    assert "compared with transformers" in " ".join(accepted.output.split())
    kept = load_checkpoint(out).certificate
    assert kept["outputs"] == "logits"
    assert kept["max_difference"] < MAX_DIFFERENCE
    left_out = CliRunner().invoke(app, ["import", str(folder), str(out), "--compare", "none"])
    assert left_out.exit_code == 0
    assert not load_checkpoint(out).certificate


def test_where_nothing_is_compared_the_line_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = classifier(tmp_path)
    checkpoint = load_checkpoint(folder)
    merged = certify(checkpoint, folder, "an adapter was merged")
    assert str(merged).endswith("same tokens; not compared: outputs, as an adapter was merged")
    elsewhere = certify(checkpoint, tmp_path / "model.gguf")
    assert str(elsewhere) == "not compared: transformers reads no config.json there"
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization": {"bits": 4}}))
    rounded = str(certify(checkpoint, folder))
    assert "not compared: outputs, as the stored weights are rounded" in rounded
    monkeypatch.setattr(certificate, "find_spec", lambda _: None)
    without = certify(checkpoint, folder)
    assert str(without) == ("not compared: transformers is not installed: pip install transformers")
    assert without.is_equal


def test_a_certificate_is_a_line_of_plain_numbers() -> None:
    made = Certificate("transformers 5.0", 200, 200, "", "logits", 3.4567e-6)
    assert made.to_dict()["max_difference"] == 3e-6
    assert str(made) == (
        "compared with transformers 5.0: 200 of 200 texts give the same tokens; logits within 3e-06"
    )
    assert not replace(made, max_difference=2 * MAX_DIFFERENCE).is_equal
    values: dict[str, Any] = made.to_dict()
    assert Certificate(**values) == replace(made, max_difference=3e-6)
