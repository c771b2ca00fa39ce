"""Comparisons by libraries that the project does not install; each test needs its own.

`pip install sentence-transformers peft accelerate compressed-tensors` in an environment of its own
runs them.
"""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.convert_slow_tokenizer import bytes_to_unicode

from commands.folders.importing import read_checkpoint
from models.checkpoints.checkpoint import Checkpoint
from models.errors import CheckpointError
from models.recipes.import_settings import ImportSettings
from tests.checkpoints.rows import ROWS
from tests.commands.folders.test_explain import classifier
from tests.export.certificates.test_certify import certified, put_in, row_of, swapped_rows, writer
from tests.models.checkpoints.gguf.test_networks import of
from tests.models.checkpoints.gguf.writing import write_gguf

WHOLE = "sentence_transformers"
PROMPTS = {"prompts": {"query": "find: ", "document": ""}, "default_prompt_name": "query"}
EMBEDDERS = [row for row in ROWS if row.pooling]
SCORERS = [row for row in ROWS if row.head == "score"]


def with_prompts(folder: Path) -> Path:
    next(row for row in ROWS if (row.kind, row.head) == ("bert", "embedding")).write(folder)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS))
    return folder


@pytest.mark.parametrize("row", EMBEDDERS, ids=lambda row: row.name)
def test_vectors_are_those_of_sentence_transformers(row: Any, tmp_path: Path) -> None:
    pytest.importorskip(WHOLE)
    if "Identity" in [dense.activation for dense in row.dense]:
        pytest.skip("the folder names a class that PyTorch has elsewhere")
    row.write(tmp_path)
    assert row_of(certified(tmp_path), "vectors").is_equal


@pytest.mark.parametrize("row", SCORERS, ids=lambda row: row.name)
def test_scores_are_those_of_sentence_transformers(row: Any, tmp_path: Path) -> None:
    pytest.importorskip(WHOLE)
    row.write(tmp_path)
    assert row_of(certified(tmp_path), "scores").is_equal


def another_pooling(checkpoint: Checkpoint) -> None:
    model: Any = checkpoint.model
    model.pooling = "cls"


def no_norm(checkpoint: Checkpoint) -> None:
    model: Any = checkpoint.model
    model.normalize = False


def no_prompt(checkpoint: Checkpoint) -> Checkpoint:
    use = checkpoint.embedder
    return replace(checkpoint, embedder=replace(use, default_prompt=""))


def a_prompt_more(checkpoint: Checkpoint) -> Checkpoint:
    use = checkpoint.embedder
    return replace(checkpoint, embedder=replace(use, prompts={**use.prompts, "document": "x "}))


@pytest.mark.parametrize("fault", [another_pooling, no_norm, no_prompt, a_prompt_more])
def test_a_fault_behind_the_network_is_found(fault: Any, tmp_path: Path) -> None:
    pytest.importorskip(WHOLE)
    folder = with_prompts(tmp_path)
    row = row_of(certified(folder), "vectors")
    assert (row.number, row.is_equal) == (15, True)
    with pytest.raises(CheckpointError, match=r"vectors within .* with the prompt"):
        certified(folder, fault).check()


@pytest.mark.parametrize("kind", ["classifier", "writer"])
def test_an_adapter_is_merged_as_peft_does(kind: str, tmp_path: Path) -> None:
    """Weights of the same sum; an adapter that is added twice is found."""
    peft = pytest.importorskip("peft")
    is_writer = kind == "writer"
    folder = (writer if is_writer else classifier)(tmp_path / "base")
    auto: Any = getattr(
        transformers, f"AutoModelFor{'CausalLM' if is_writer else 'SequenceClassification'}"
    )
    names = ["q_proj", "v_proj"] if is_writer else ["query", "value"]
    use = "CAUSAL_LM" if is_writer else "SEQ_CLS"
    made = peft.get_peft_model(
        auto.from_pretrained(folder),
        peft.LoraConfig(r=4, target_modules=names, task_type=use, init_lora_weights=False),
    )
    made.save_pretrained(tmp_path / "adapter")
    found = certified(folder, adapter=str(tmp_path / "adapter"))
    row = found.rows[-1]
    assert (row.is_equal, row.why_not, row.number) == (True, "", 5)
    assert "the adapter merged by peft" in row.note

    def twice(checkpoint: Checkpoint) -> None:
        name = next(
            name for name, _ in checkpoint.model.named_parameters() if "0.attention.va" in name
        )
        before = read_checkpoint(str(folder), ImportSettings()).model.get_parameter(name)
        put_in(checkpoint, name, lambda weight: 2 * weight - before)

    assert not certified(folder, twice, adapter=str(tmp_path / "adapter")).is_equal


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "gemma2", "gemma3_text"])
def test_a_file_of_gguf_is_read_by_transformers_too(kind: str, tmp_path: Path) -> None:
    """Rows of queries that are left in the file's order are found.

    Of Gemmas transformers leaves the scale of queries at 256, which no key of a file has.
    """
    pytest.importorskip("accelerate")
    letters = list(bytes_to_unicode().values())  # type: ignore[no-untyped-call]
    further = {
        "tokenizer.ggml.tokens": [*letters, "th", "<end>"],
        "tokenizer.ggml.token_type": [1] * (len(letters) + 2),
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": len(letters) + 1,
    }
    gemma = {"query_pre_attn_scalar": 8} if "gemma" in kind else {}
    model = of(kind, vocab_size=len(letters) + 2, num_hidden_layers=2, **gemma)
    write_gguf(model, tmp_path / "tiny.gguf", further=further)
    row = row_of(certified(tmp_path), "log probabilities")
    note = "with query_pre_attn_scalar 8" if gemma else ""
    assert (row.is_equal, row.note) == (True, note)
    assert not certified(tmp_path, swapped_rows).is_equal


def test_compressed_weights_are_dequantised_by_their_library(tmp_path: Path) -> None:
    pytest.importorskip("compressed_tensors")
    folder = writer(tmp_path)
    stated = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel",
                },
            }
        },
    }  # fmt: skip
    files = import_module("safetensors.torch")
    tensors = files.load_file(folder / "model.safetensors")
    for name in [name for name in tensors if "_proj" in name]:
        weight = tensors.pop(name)
        scale = weight.abs().amax(1, keepdim=True) / 127
        tensors[name] = (weight / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale
    files.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": stated}))
    row = row_of(certified(folder), "log probabilities")
    assert row.is_equal
    assert row.note.startswith("dequantised by compressed-tensors")
