"""Folders whose decoder reads texts: parity with transformers on random weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from models.checkpoints.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.checkpoints.decoder_readers import ending_as_declared
from models.networks.decoder_readers import DecoderClassifier, DecoderPairScorer
from tests.models.checkpoints.test_llama import SIZES
from tests.models.tiny import word_tokenizer

GPT2: dict[str, Any] = {
    "vocab_size": 40,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 3,
    "eos_token_id": 3,
    "pad_token_id": 0,
}
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "llama": SIZES,
    "mistral": {**SIZES, "sliding_window": 5},
    "qwen2": SIZES,
    "qwen3": {**SIZES, "head_dim": 16},
    "gemma": {**SIZES, "head_dim": 16},
    "gemma2": {**SIZES, "head_dim": 16, "sliding_window": 6},
    "gemma3_text": {**SIZES, "head_dim": 16, "sliding_window": 6, "num_hidden_layers": 7},
}
ROWS = ([5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [3, 2], [7])
MODULES = [
    {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{name}"}
    for place, (name, path) in enumerate(
        (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    )
]


def write(folder: Path, kind: str, head: Any, **changes: Any) -> Any:
    """A folder, and the network in it, random in every tensor; its norms stay near 1."""
    torch.manual_seed(6)
    config = transformers.AutoConfig.for_model(kind, **{**KINDS[kind], **changes})
    network = head.from_config(config)
    network.train(False)
    for parameter in network.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    network.save_pretrained(folder)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    return network


def declare_embedder(folder: Path, flag: str) -> None:
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({flag: True}))


@torch.inference_mode()
def by_ours(folder: Path, tmp_path: Path, rows: Any = ROWS) -> list[np.ndarray]:
    """Outputs of a batch, after the checkpoint was written and read again."""
    save_checkpoint(load_checkpoint(folder), tmp_path / "ours")
    network = load_checkpoint(tmp_path / "ours").text_network
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for row, target in zip(rows, ids, strict=True):
        target[: len(row)] = torch.tensor(row)
    lengths = torch.tensor([[len(row)] for row in rows])
    mask = (torch.arange(ids.shape[1]) < lengths).to(torch.int64)
    return list(network(ids, mask).numpy())


@torch.inference_mode()
def by_theirs(network: Any, row: list[int]) -> Any:
    return network(torch.tensor([row]))


@pytest.mark.parametrize("kind", KINDS)
def test_classes_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    """Of the last token that is no padding, which a text may end with."""
    folder = tmp_path / "theirs"
    head = transformers.AutoModelForSequenceClassification
    network = write(folder, kind, head, num_labels=3)
    rows = (*ROWS, [5, 6, 7, 0, 0])
    assert isinstance(load_checkpoint(folder).model, DecoderClassifier)
    for row, ours in zip(rows, by_ours(folder, tmp_path, rows), strict=True):
        np.testing.assert_allclose(ours, by_theirs(network, row).logits[0], rtol=0, atol=1e-5)


def test_one_label_scores_pairs(tmp_path: Path) -> None:
    network = write(
        tmp_path / "theirs", "qwen3", transformers.AutoModelForSequenceClassification, num_labels=1
    )
    checkpoint = load_checkpoint(tmp_path / "theirs")
    assert checkpoint.task == "pair-scoring"
    assert isinstance(checkpoint.model, DecoderPairScorer)
    for row, ours in zip(ROWS, by_ours(tmp_path / "theirs", tmp_path), strict=True):
        np.testing.assert_allclose(ours, by_theirs(network, row).logits[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["qwen3", "mistral", "gpt2", "llama"])
def test_an_embedder_takes_the_last_token(kind: str, tmp_path: Path) -> None:
    """As sentence-transformers' `pooling_mode_lasttoken`: also one that pads elsewhere."""
    folder = tmp_path / "theirs"
    network = write(folder, kind, transformers.AutoModel)
    declare_embedder(folder, "pooling_mode_lasttoken")
    rows = (*ROWS, [5, 6, 0])
    for row, ours in zip(rows, by_ours(folder, tmp_path, rows), strict=True):
        hidden = by_theirs(network, row).last_hidden_state[0, -1]
        np.testing.assert_allclose(ours, hidden / hidden.norm(), rtol=0, atol=1e-5)


def test_an_embedder_of_a_whole_language_model_leaves_its_output_layer_out(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    network = write(folder, "llama", transformers.AutoModelForCausalLM)
    declare_embedder(folder, "pooling_mode_mean_tokens")
    for row, ours in zip(ROWS, by_ours(folder, tmp_path), strict=True):
        mean = by_theirs(network.model, row).last_hidden_state[0].mean(dim=0)
        np.testing.assert_allclose(ours, mean / mean.norm(), rtol=0, atol=1e-5)


def test_a_decoder_that_looks_both_ways_has_a_window_to_both_sides(tmp_path: Path) -> None:
    """As EmbeddingGemma: a window of 6 is one of 3 on each side, and padding is not seen."""
    folder = tmp_path / "theirs"
    network = write(folder, "gemma3_text", transformers.AutoModel, use_bidirectional_attention=True)
    with pytest.raises(CheckpointError, match=r"use_bidirectional_attention.*modules\.json"):
        load_checkpoint(folder)
    declare_embedder(folder, "pooling_mode_mean_tokens")
    for row, ours in zip(ROWS, by_ours(folder, tmp_path), strict=True):
        mean = by_theirs(network, row).last_hidden_state[0].mean(dim=0)
        np.testing.assert_allclose(ours, mean / mean.norm(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gpt2"])
def test_a_decoder_that_is_not_causal_sees_what_follows(kind: str, tmp_path: Path) -> None:
    """As gte-Qwen2 and voyage-4-nano: a window of 5 is one of 5 back and 5 ahead."""
    folder = tmp_path / "theirs"
    changes = {"attn_implementation": "eager"} if kind == "gemma2" else {}
    network = write(folder, kind, transformers.AutoModel, is_causal=False, **changes)
    with pytest.raises(CheckpointError, match=r"is_causal false is for.*modules\.json"):
        load_checkpoint(folder)
    declare_embedder(folder, "pooling_mode_mean_tokens")
    for row, ours in zip(ROWS, by_ours(folder, tmp_path), strict=True):
        mean = by_theirs(network, row).last_hidden_state[0].mean(dim=0)
        np.testing.assert_allclose(ours, mean / mean.norm(), rtol=0, atol=1e-5)


def test_a_gpt2_that_is_not_causal_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, "gpt2", transformers.AutoModel, is_causal=False)
    declare_embedder(tmp_path, "pooling_mode_mean_tokens")
    with pytest.raises(CheckpointError, match="is_causal is False, but only True is supported"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("begins", [True, False])
def test_texts_end_where_the_configuration_of_the_tokenizer_says_so(
    begins: bool, tmp_path: Path
) -> None:
    """As e5-mistral's: `add_eos_token` is true, and tokenizer.json itself adds no end."""
    tokenizer = word_tokenizer()
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    start, end = words[2], words[3]
    single = f"{start} $A" if begins else "$A"
    special = [(start, 2)] if begins else []
    tokenizer.post_processor = TemplateProcessing(single=single, special_tokens=special)
    plain = Tokenizer.from_str(tokenizer.to_str())
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(json.dumps({"add_eos_token": False, "eos_token": end}))
    assert ending_as_declared(tokenizer, tmp_path).to_str() == plain.to_str()
    settings.write_text(json.dumps({"add_eos_token": True, "eos_token": {"content": end}}))
    ending = ending_as_declared(tokenizer, tmp_path)
    of_one, of_other = (plain.encode(text).ids for text in ("free prize", "lunch"))
    assert ending.encode("free prize").ids == [*of_one, 3]
    assert ending.encode("free prize", "lunch").ids == [*of_one, 3, *of_other, 3]
    assert ending_as_declared(ending, tmp_path).to_str() == ending.to_str()
