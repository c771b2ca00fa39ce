"""Adapters that are trained: the base stays, and --adapter makes of the files what has learnt."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import Result

from models.checkpoints.adapter_files import save_adapter
from models.checkpoints.adapters import merged
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from models.checkpoints.peft import ADAPTER_CONFIG, ADAPTER_WEIGHTS, read_peft
from models.data.datasets import Dataset, Splits
from models.errors import CheckpointError, SettingError, TrainingInterruptedError
from models.networks.lora import adapted_maps
from models.recipes.finetune import finetune, finetune_by
from models.recipes.gpt import PRETRAINING as GPT_PRETRAINING
from models.recipes.llama import PRETRAINING
from models.recipes.pretrain import pretrain
from models.recipes.tagging import TOKEN_CLASSIFICATION
from models.training.pretrain_settings import GPTSettings, LlamaSettings
from models.training.settings import TrainingSettings
from models.training.trainer import Session
from tests.fakes.tiny_gpt import tiny_generator
from tests.fakes.tiny_llama import tiny_llama, tiny_llama_generator
from tests.models.recipes.mats import mats
from tests.models.runs import stop_after

# 24 rows train: 3 steps per epoch.
SETTINGS = TrainingSettings(
    epochs=3, batch_size=8, learning_rate=2e-2, patience=6, precision="off", lora=True, lora_rank=4
)
ON_CORPUS: dict[str, Any] = {
    "steps": 8,
    "batch_size": 2,
    "learning_rate": 1e-2,
    "evaluate_every": 4,
    "sample_tokens": 0,
    "validation_windows": 2,
    "precision": "off",
    "lora": True,
    "lora_targets": "query,value,contract",
}


def body_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights that the base has, without the head and the factors."""
    state = model.state_dict()
    return {n: w for n, w in state.items() if ".lora_" not in n and not n.startswith("head.")}


def test_a_classifier_learns_by_factors_and_its_head(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset], tmp_path: Path
) -> None:
    tuned = finetune(embedder_checkpoint, splits, SETTINGS).checkpoint
    before = embedder_checkpoint.model.state_dict()
    assert all(torch.equal(weight, before[n]) for n, weight in body_of(tuned.model).items())
    assert len(adapted_maps(tuned.model)) == 2 * tuned.config.num_layers
    assert all(each.lora_B.abs().sum() > 0 for each in adapted_maps(tuned.model).values())
    save_adapter(tuned, "bert-tiny", tmp_path, {"training.json": b"{}"})
    found = merged(read_peft(tmp_path), embedder_checkpoint)
    assert (found.task, found.labels) == ("text-classification", ("ham", "spam"))
    rows = torch.tensor([[1, 5, 6, 7], [2, 8, 9, 4]]), torch.ones(2, 4, dtype=torch.int64)
    with torch.inference_mode():
        torch.testing.assert_close(found.model(*rows), tuned.model(*rows), atol=1e-5, rtol=1e-5)
        plain = embedder_checkpoint.encoder_model.encoder(*rows)
        assert (plain[-1] - found.encoder_model.encoder(*rows)[-1]).abs().max() > 1e-3


def test_the_files_are_what_peft_writes(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset], tmp_path: Path
) -> None:
    """By the names of BertForSequenceClassification, as the base is none of another family's."""
    tuned = finetune(embedder_checkpoint, splits, replace(SETTINGS, epochs=1)).checkpoint
    save_adapter(tuned, "org/base", tmp_path, {})
    config = json.loads((tmp_path / ADAPTER_CONFIG).read_text())
    assert (config["r"], config["lora_alpha"], config["task_type"]) == (4, 8.0, "SEQ_CLS")
    assert config["base_model_name_or_path"] == "org/base"
    assert config["modules_to_save"] == ["classifier", "pooler"]
    tensors = load_file(tmp_path / ADAPTER_WEIGHTS)
    layer = "base_model.model.bert.encoder.layer.0.attention.self"
    assert tensors[f"{layer}.query.lora_A.weight"].shape == (4, 16)
    assert tensors["base_model.model.classifier.weight"].shape == (2, 16)
    assert tensors["base_model.model.bert.pooler.dense.bias"].shape == (16,)
    assert len(tensors) == 4 * tuned.config.num_layers + 4


def test_a_stopped_run_ends_as_an_uninterrupted_one(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset], tmp_path: Path
) -> None:
    settings = replace(SETTINGS, epochs=2)
    whole = finetune(embedder_checkpoint, splits, settings).checkpoint.model.state_dict()
    session = Session(tmp_path / "state", should_stop=stop_after(4))
    with pytest.raises(TrainingInterruptedError):
        finetune(embedder_checkpoint, splits, settings, session)
    resumed = finetune(embedder_checkpoint, splits, settings, Session(tmp_path / "state"))
    state = resumed.checkpoint.model.state_dict()
    assert all(torch.equal(weight, state[name]) for name, weight in whole.items())
    other = replace(settings, lora_rank=2)
    with pytest.raises(CheckpointError, match="lora_rank 4 and not 2"):
        finetune(embedder_checkpoint, splits, other, Session(tmp_path / "state"))


@pytest.mark.parametrize("kind", ["llama", "gpt", "phi3", "granite"])
def test_a_decoder_continues_on_a_corpus(kind: str, tmp_path: Path) -> None:
    """Products that the family stores as one, and a factor that the base has folded in, come back.

    GPT-2's query and value are of one map with its key, which has rows of zeros then.
    """
    if kind == "gpt":
        start = tiny_generator()
        settings: Any = GPTSettings(**ON_CORPUS)
    else:
        start = tiny_llama_generator(tiny_llama(max_positions=32))
        settings = LlamaSettings(**ON_CORPUS)
        source: dict[str, Any] = {"model_type": kind}
        if kind == "granite":
            source["residual_multiplier"] = 0.25
        start = replace(start, source=source)
    pretraining = GPT_PRETRAINING if kind == "gpt" else PRETRAINING
    before = {name: weight.clone() for name, weight in start.model.state_dict().items()}
    tuned = pretrain(pretraining, mats(), start.tokenizer, settings, None, start).checkpoint
    assert tuned.metrics["validation_perplexity"] > 0
    assert all(torch.equal(weight, before[n]) for n, weight in body_of(tuned.model).items())
    save_adapter(tuned, "base", tmp_path, {})
    names = set(load_file(tmp_path / ADAPTER_WEIGHTS))
    expected = {"gpt": "transformer.h.0.attn.c_attn", "phi3": "model.layers.0.self_attn.qkv_proj"}
    name = expected.get(kind, "model.layers.0.self_attn.q_proj")
    assert f"base_model.model.{name}.lora_B.weight" in names
    found = merged(read_peft(tmp_path), start)
    ids = torch.tensor([[3, 7, 9, 12, 20]])
    with torch.inference_mode():
        after = tuned.model(ids)
        torch.testing.assert_close(found.model(ids), after, atol=1e-4, rtol=1e-4)
        assert (start.model(ids) - after).abs().max() > 1e-2


def test_the_commands_train_an_adapter_and_import_it(
    run: Callable[..., Result],
    base: Path,
    messages: Dataset,
    as_tsv: Callable[[Dataset], str],
    tmp_path: Path,
) -> None:
    data, adapter = tmp_path / "data.tsv", tmp_path / "adapter"
    data.write_text(as_tsv(messages))
    trained = run(
        "train",
        data,
        *("--from", base, "--output", adapter, "--lora", "--lora-targets", "all-linear"),
        *("--epochs", "1", "--precision", "off"),
    )
    assert trained.exit_code == 0, trained.output
    assert json.loads((adapter / ADAPTER_CONFIG).read_text())["base_model_name_or_path"] == str(
        base
    )
    assert (adapter / "training.json").is_file()
    assert not (tmp_path / "adapter.resume.pt").exists()
    imported = run("import", base, tmp_path / "own", "--adapter", adapter)
    assert imported.exit_code == 0, imported.output
    own = load_checkpoint(tmp_path / "own")
    assert own.origin == "tiny, with the adapter adapter"
    assert own.labels == ("ham", "spam")
    refused = run("import", base, tmp_path / "other", "--adapter", tmp_path / "none")
    assert refused.exit_code == 1
    assert "there is no folder" in refused.output


def test_what_adapters_cannot_learn_is_refused(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    with pytest.raises(SettingError, match="lora_targets is 'gate', but must be of contract, exp"):
        finetune(embedder_checkpoint, splits, replace(SETTINGS, lora_targets="query,gate"))
    with pytest.raises(SettingError, match="lora_rank is 4, but must be left out without --lora"):
        TrainingSettings(lora_rank=4)
    with pytest.raises(SettingError, match="freeze_encoder is True, but must be left out with"):
        TrainingSettings(lora=True, freeze_encoder=True)
    tags: Any = splits
    with pytest.raises(SettingError, match="token-classification has no adapters yet"):
        finetune_by(TOKEN_CLASSIFICATION, embedder_checkpoint, tags, SETTINGS)
    start = tiny_llama_generator()
    with pytest.raises(SettingError, match="lora is True, but must be left out without --from"):
        pretrain(PRETRAINING, mats(), start.tokenizer, LlamaSettings(**ON_CORPUS))
