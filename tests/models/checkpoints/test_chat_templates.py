"""Chat templates: read from each of the files that Hugging Face has, kept, and exported."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.chat_templates import read_chat
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.errors import CheckpointError
from service.contract.files import read_texts
from service.contract.manifest import Manifest
from service.text.conversation import CHAT_FILES, ChatTemplates
from tests.fakes.tiny_gpt import tiny_generator

TURN = "<|im_end|>"


def write(folder: Path, name: str, content: Any) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def named(**texts: str) -> list[dict[str, str]]:
    return [{"name": name, "template": text} for name, text in texts.items()]


def test_a_folder_without_a_template_has_none(tmp_path: Path) -> None:
    assert read_chat(tmp_path) == {}
    write(tmp_path, "tokenizer_config.json", {"eos_token": TURN})
    assert read_chat(tmp_path) == {}


@pytest.mark.parametrize("template", ["a", named(default="a")])
def test_a_template_is_in_the_configuration(tmp_path: Path, template: Any) -> None:
    tokens = {"eos_token": {"content": TURN, "special": True}, "bos_token": None, "x_token": 1}
    write(tmp_path, "tokenizer_config.json", {"chat_template": template, **tokens})
    assert read_chat(tmp_path) == {"chat_template": named(default="a"), "eos_token": TURN}


def test_files_of_templates_win_and_older_tokens_are_read(tmp_path: Path) -> None:
    write(tmp_path, "tokenizer_config.json", {"chat_template": "old", "eos_token": "</s>"})
    write(tmp_path, "special_tokens_map.json", {"eos_token": "older", "bos_token": "<s>"})
    write(tmp_path, "chat_template.jinja", "new")
    write(tmp_path, "additional_chat_templates/tool_use.jinja", "tools")
    assert read_chat(tmp_path) == {
        "chat_template": named(default="new", tool_use="tools"),
        "bos_token": "<s>",
        "eos_token": "</s>",
    }


@pytest.mark.parametrize("value", [1, [1], [{"name": "a"}]])
def test_what_is_no_template_is_named(tmp_path: Path, value: Any) -> None:
    write(tmp_path, "tokenizer_config.json", {"chat_template": value})
    with pytest.raises(CheckpointError, match="chat_template is neither a text nor a list"):
        read_chat(tmp_path)


def test_templates_go_with_a_checkpoint_into_its_export(tmp_path: Path) -> None:
    """And the token that ends a turn ends an answer, beside the network's own."""
    plain = tiny_generator()
    end = plain.tokenizer.token_to_id("a")
    chat = {"chat_template": named(default="{{ eos_token }}"), "eos_token": "a"}
    save_checkpoint(replace(plain, chat=chat), tmp_path / "kept")
    loaded = load_checkpoint(tmp_path / "kept")
    assert loaded.chat == chat
    export_any(loaded, ExportSettings("talks", tmp_path / "models", "fp32"))
    folder = tmp_path / "models" / "talks" / "1"
    templates = ChatTemplates.of(read_texts(folder, CHAT_FILES))
    assert templates is not None
    assert templates.texts == {"default": "{{ eos_token }}"}
    assert templates.special_tokens == {"eos_token": "a"}
    manifest = Manifest.from_json((folder / "manifest.json").read_text())
    assert manifest.eos_token_ids == (plain.config.eos_token_id, end)


def test_a_checkpoint_without_templates_has_no_further_file(tmp_path: Path) -> None:
    save_checkpoint(tiny_generator(), tmp_path / "kept")
    assert not (tmp_path / "kept" / "tokenizer_config.json").exists()
