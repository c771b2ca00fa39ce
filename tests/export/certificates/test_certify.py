"""An import is compared with the folder's own network, and refused where it differs."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from typer.testing import CliRunner

from commands.folders.importing import case_of, read_checkpoint
from commands.main import app
from export.certificates import case as cases
from export.certificates import certificate
from export.certificates.certificate import Certificate, Row
from export.certificates.certify import certify
from export.certificates.probes import CONVERSATIONS, PROBES
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from models.errors import CheckpointError
from models.recipes.import_settings import ImportSettings
from tests.checkpoints.fields import network
from tests.checkpoints.rows import ROWS
from tests.checkpoints.spellings import save_tokenizer
from tests.commands.folders.test_explain import classifier
from tests.fakes.chats import FAMILIES, TOOLS
from tests.models.checkpoints.gguf.test_networks import of
from tests.models.checkpoints.gguf.writing import write_gguf
from tests.models.checkpoints.rounded.test_folders import WAYS, folders

COMPARED = {
    ("bert", "masks"): "log probabilities",
    ("bert", "answers"): "logits",
    ("bert", "tokens"): "logits",
    ("bert", "terms"): "weights of words",
    ("qwen3", "embedding"): "hidden states",
    ("t5", "texts"): "log probabilities",
    ("vit", "images"): "logits",
}


def written(kind: str, head: str, folder: Path) -> Path:
    next(row for row in ROWS if (row.kind, row.head) == (kind, head)).write(folder)
    return folder


def writer(folder: Path, template: str = TOOLS, **fields: Any) -> Path:
    """A decoder that chats."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    made = network("llama", transformers.AutoModelForCausalLM, vocab_size=600, **fields)
    made.save_pretrained(folder)
    save_tokenizer("gpt2", folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def certified(
    folder: Path,
    fault: Callable[[Checkpoint], Checkpoint | None] = lambda _: None,
    **settings: Any,
) -> Certificate:
    """The certificate of an import with a fault in it."""
    imports = ImportSettings(**settings)
    checkpoint = read_checkpoint(str(folder), imports)
    with case_of(fault(checkpoint) or checkpoint, folder, imports) as case:
        return certify(case)


def row_of(found: Certificate, what: str) -> Row:
    (row,) = [each for each in found.rows if each.what == what and each.by]
    return row


@pytest.mark.parametrize(("kind", "head"), COMPARED)
def test_an_import_equals_the_folders_own_network(kind: str, head: str, tmp_path: Path) -> None:
    """Within 1e-4 of the largest output, and in the tokens of all 200 texts."""
    found = certified(written(kind, head, tmp_path))
    row = row_of(found, COMPARED[kind, head])
    assert row.max_difference is not None
    assert 0 <= row.max_difference < 1e-4
    assert row.number == row.equal > 1
    if kind != "vit":
        tokens = row_of(found, "tokens")
        assert (tokens.equal, tokens.number) == (200, len(PROBES))
    assert found.is_equal


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_of_published_templates_are_those_of_transformers(
    family: str, tmp_path: Path
) -> None:
    """Of all five conversations, functions and thinking among them, or both refuse them."""
    row = row_of(certified(writer(tmp_path, FAMILIES[family])), "conversations")
    assert row.first == ""
    assert (row.equal, row.number) == (len(CONVERSATIONS), 5)


@pytest.mark.parametrize("way", WAYS)
def test_rounded_weights_are_compared_by_a_network_of_transformers(
    way: str, tmp_path: Path
) -> None:
    found = certified(folders("llama", way, tmp_path)[0])
    row = row_of(found, "logits")
    assert row.is_equal
    assert "with the weights as we restore them" in row.note


@pytest.mark.parametrize("kind", ["llama", "granite"])
def test_a_file_of_gguf_is_compared(kind: str, tmp_path: Path) -> None:
    write_gguf(of(kind), tmp_path / "tiny.gguf")
    found = certified(tmp_path)
    assert row_of(found, "log probabilities").is_equal
    if kind == "llama":  # transformers reads no tokenizer of the other's
        assert row_of(found, "tokens").number > 190


def put_in(checkpoint: Checkpoint, name: str, change: Callable[[Tensor], Tensor]) -> None:
    """Put other numbers in place of a weight, which may stay in its file."""
    place, _, last = name.rpartition(".")
    module = checkpoint.model.get_submodule(place)
    weight = torch.cat([module.get_parameter(last).detach()])
    setattr(module, last, nn.Parameter(change(weight)))


def scaled(checkpoint: Checkpoint) -> None:
    name, _ = next(checkpoint.model.named_parameters())
    put_in(checkpoint, name, lambda weight: 1.5 * weight)


def no_number(checkpoint: Checkpoint) -> None:
    name, _ = next(checkpoint.model.named_parameters())
    put_in(checkpoint, name, lambda weight: math.nan * weight)


def second_layer(checkpoint: Checkpoint) -> None:
    put_in(checkpoint, "layers.1.feed_forward.contract.weight", lambda weight: 3 * weight)


def swapped_rows(checkpoint: Checkpoint) -> None:
    """As where the rows of queries are left in the order of GGUF."""

    def swapped(weight: Tensor) -> Tensor:
        pairs = weight.reshape(4, -1, 2, weight.shape[1])
        return pairs.swapaxes(1, 2).reshape(weight.shape)

    put_in(checkpoint, "layers.0.attention.query.weight", swapped)


def another_token(checkpoint: Checkpoint) -> None:
    checkpoint.tokenizer.add_special_tokens(["quick"])


def types_of_one(checkpoint: Checkpoint) -> None:
    """Token types of a pair are those of the first text throughout."""
    special = [(name, checkpoint.tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    checkpoint.tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:0 [SEP]:0", special_tokens=special
    )


def a_space_more(checkpoint: Checkpoint) -> Checkpoint:
    chat = json.loads(json.dumps(dict(checkpoint.chat)).replace("[a]", "[a] "))
    return replace(checkpoint, chat=chat)


def without_template(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, chat={**checkpoint.chat, "chat_template": "{{ messages }}"})


def turned_labels(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, labels=checkpoint.labels[::-1])


FAULTS: dict[str, tuple[Callable[[Path], Path], Any, str, str]] = {
    "weights": (classifier, scaled, "logits", "'The film was .*; the states of layer 0 of 2 are"),
    "no number": (classifier, no_number, "logits", "layer 0 of 2 are the first that differ"),
    "a layer": (writer, second_layer, "log probabilities", "layer 1 of 2 are the first"),
    "queries": (writer, swapped_rows, "log probabilities", "layer 0 of 2 are the first"),
    "a token": (classifier, another_token, "tokens", "quick brown fox.* from place 2"),
    "types": (
        lambda folder: written("bert", "score", folder),
        types_of_one,
        "tokens",
        r"from place \d+: \[.*, 0\)\], not \[.*, 1\)\]",
    ),
    "a space": (writer, a_space_more, "conversations", "of a question, from place 0"),
    "a template": (writer, without_template, "conversations", "of a question"),
    "labels": (classifier, turned_labels, "labels", "label 0.* not 'L_0'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named(fault: str, tmp_path: Path) -> None:
    """Each by its row, with the text or layer that differs first, and refused."""
    folder_of, change, what, first = FAULTS[fault]
    folder = folder_of(tmp_path)
    assert certified(folder).is_equal
    found = certified(folder, change)
    row = row_of(found, what)
    assert not row.is_equal
    with pytest.raises(CheckpointError, match=f"differs from the folder's own.*{first}"):
        found.check()


def test_a_difference_is_accepted_on_request_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = classifier(tmp_path / "folder"), tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(certificate.Pair, "difference", 0.25)
        refused = CliRunner().invoke(app, ["import", str(folder), str(out)])
        assert refused.exit_code == 1
        assert "--accept-difference goes on" in refused.output
        assert not out.exists()
        line = ["import", str(folder), str(out), "--accept-difference"]
        accepted = CliRunner().invoke(app, line)
        assert accepted.exit_code == 0
    assert "0 of 200 texts give the same tokens" in " ".join(accepted.output.split())
    kept = Certificate.from_dict(load_checkpoint(out).certificate)
    assert (row_of(kept, "logits").max_difference, kept.is_equal) == (0.2, False)
    left_out = CliRunner().invoke(app, ["import", str(folder), str(out), "--compare", "none"])
    assert left_out.exit_code == 0
    assert not load_checkpoint(out).certificate


def test_a_large_network_is_compared_in_its_first_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three, of encoders and decoders, and the row says so; a fault in these is found."""
    monkeypatch.setattr(cases, "NUM_LAYERS", 2)
    encoder = written("bert", "classes", tmp_path / "encoder")
    both = written("t5", "texts", tmp_path / "both")
    for folder in (encoder, both, writer(tmp_path / "decoder", num_hidden_layers=3)):
        imports = ImportSettings()
        checkpoint = read_checkpoint(str(folder), imports)
        with case_of(checkpoint, folder, imports) as case:
            row = certify(replace(case, max_bytes=0)).rows[-1]
            assert row.is_equal
            assert row.note == "the first 2 layers alone"
    second_layer(checkpoint)
    with case_of(checkpoint, folder, imports) as case:
        row = certify(replace(case, max_bytes=0)).rows[-1]
    assert "layer 1 of 2 are the first that differ" in row.first


@pytest.mark.parametrize("library", ["transformers", "sentence_transformers"])
def test_where_a_library_is_absent_the_line_says_so(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without sentence-transformers, transformers and our own reading stand in."""
    monkeypatch.setattr(cases, "find_spec", lambda name: None if name == library else "there")
    found = certified(written("bert", "embedding", tmp_path))
    name = library.replace("_", "-")
    assert f"as {name} is not installed: pip install {name}" in str(found).replace(
        "not compared: ", "as "
    )
    assert found.is_equal
    if library == "sentence_transformers":
        note = row_of(found, "hidden states").note
        assert note == "prompts, pooling and maps as we read them, without sentence-transformers"


def test_a_folder_that_cannot_be_compared_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = classifier(tmp_path)
    checkpoint = load_checkpoint(folder)
    assert "transformers reads no config.json" in cases.Case(checkpoint, tmp_path / "a").why_not
    (folder / "config.json").write_text('{"model_type": "other"}')
    assert "no network for the model_type 'other'" in cases.Case(checkpoint, folder).why_not
    (folder / "config.json").write_text('{"task": "mine"}')
    assert "Attendant's own" in cases.Case(checkpoint, folder).why_not


def test_a_missing_peft_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "find_spec", lambda name: None if name == "peft" else "there")
    folder = classifier(tmp_path)
    case = cases.Case(load_checkpoint(folder), folder, adapter=tmp_path)
    assert "logits: not compared, as peft is not installed" in str(certify(case))
