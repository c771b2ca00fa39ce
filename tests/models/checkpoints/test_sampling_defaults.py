"""What generation_config.json says of sampling, from the folder into a manifest."""

import json
from pathlib import Path
from typing import Any

import pytest

from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.checkpoints.sampling_defaults import read_sampling
from models.errors import CheckpointError
from tests.fakes.tiny_llama import tiny_llama_generator


def write(folder: Path, **values: Any) -> Path:
    (folder / "generation_config.json").write_text(json.dumps(values))
    return folder


def test_what_is_stated_is_read_by_the_names_of_the_server(tmp_path: Path) -> None:
    write(
        tmp_path,
        do_sample=True,
        temperature=0.6,
        top_k=20,
        top_p=0.95,
        min_p=None,
        repetition_penalty=1.1,
        max_new_tokens=2048,
        max_length=4096,
        eos_token_id=2,
    )
    assert read_sampling(tmp_path) == {
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "repetition_penalty": 1.1,
        "max_tokens": 2048,
    }


def test_without_sampling_the_likeliest_token_is_taken(tmp_path: Path) -> None:
    assert read_sampling(tmp_path) == {}
    assert read_sampling(write(tmp_path, do_sample=False, temperature=0.6)) == {"temperature": 0.0}


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("temperature", -1, "from 0 to 100"),
        ("temperature", float("nan"), "from 0 to 100"),
        ("temperature", "hot", "a number from 0 to 100"),
        ("top_p", 0, "from 1e-09 to 1"),
        ("top_k", 2.5, "a whole number from 0"),
        ("top_k", 10**400, "a whole number from 0 to 2147483647"),
        ("max_new_tokens", True, "a whole number from 1"),
        ("max_new_tokens", 0, "from 1 to"),
        ("repetition_penalty", [], "a number from 0.01"),
    ],
)
def test_what_the_server_would_refuse_is_refused_with_file_field_and_limit(
    tmp_path: Path, field: str, value: Any, limit: str
) -> None:
    with pytest.raises(CheckpointError, match=f"generation_config.json: {field} is .*{limit}"):
        read_sampling(write(tmp_path, **{field: value}))


def test_a_checkpoint_keeps_it_and_an_export_writes_it_into_the_manifest(tmp_path: Path) -> None:
    checkpoint = tiny_llama_generator()
    sampling = {"temperature": 0.5, "top_k": 7}
    object.__setattr__(checkpoint, "sampling", sampling)
    save_checkpoint(checkpoint, tmp_path / "kept")
    kept = load_checkpoint(tmp_path / "kept")
    assert kept.sampling == sampling
    exported = export_any(kept, ExportSettings("tiny", tmp_path / "repository", "fp32"))
    assert exported.manifest.sampling == sampling
