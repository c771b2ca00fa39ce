"""Folders whose network is transformers' own and reads texts: what it becomes, and refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.checkpoints.plan import recognise
from models.errors import CheckpointError
from models.networks.reader_makers import embedder_of
from models.networks.traced_readers import (
    TracedAnswerer,
    TracedClassifier,
    TracedEmbedder,
    TracedMaskedWords,
    TracedPairScorer,
    TracedReader,
    TracedTokenClassifier,
)
from tests.decoders.rows import tokenizer
from tests.traced.networks import (
    class_in,
    tiny_config,
    tiny_decoder,
    tiny_network,
    tiny_reader,
)

POOLING = {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}
TRANSFORMER = {"type": "sentence_transformers.models.Transformer", "path": ""}


def hub_folder(
    folder: Path, model_type: str = "ernie", factory: str = "AutoModel", **changes: Any
) -> Path:
    """A folder as transformers writes it, with a tokenizer that has a mask."""
    words = tokenizer()
    words.add_special_tokens(["[MASK]"])
    config = tiny_config(model_type, vocab_size=words.get_vocab_size(), **changes)
    tiny_network(config, class_in(factory)).save_pretrained(folder)
    words.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"mask_token": "[MASK]"}))
    return folder


def as_embedder(folder: Path, mode: str) -> Path:
    """The folder as sentence-transformers has one."""
    modules = [{"idx": n, "name": str(n), **each} for n, each in enumerate((TRANSFORMER, POOLING))]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"embedding_dimension": 64, "pooling_mode": mode}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


@pytest.mark.parametrize(
    ("factory", "changes", "kind", "task"),
    [
        ("AutoModel", {}, TracedEmbedder, "embedding"),
        ("AutoModelForPreTraining", {}, TracedEmbedder, "embedding"),
        ("AutoModelForMaskedLM", {}, TracedMaskedWords, "fill-mask"),
        (
            "AutoModelForSequenceClassification",
            {"num_labels": 3},
            TracedClassifier,
            "text-classification",
        ),
        (
            "AutoModelForSequenceClassification",
            {"num_labels": 1},
            TracedPairScorer,
            "pair-scoring",
        ),
        (
            "AutoModelForTokenClassification",
            {"num_labels": 3},
            TracedTokenClassifier,
            "token-classification",
        ),
        ("AutoModelForQuestionAnswering", {}, TracedAnswerer, "question-answering"),
    ],
)
def test_the_class_of_a_folder_decides_what_it_becomes_also_after_it_was_saved(
    tmp_path: Path, factory: str, changes: dict[str, Any], kind: type[TracedReader], task: str
) -> None:
    checkpoint = load_checkpoint(hub_folder(tmp_path / "hub", factory=factory, **changes))
    assert (type(checkpoint.model), checkpoint.task) == (kind, task)
    assert recognise(tmp_path / "hub").refusal == ""
    save_checkpoint(checkpoint, tmp_path / "saved")
    again = load_checkpoint(tmp_path / "saved")
    network = checkpoint.text_network
    ids = torch.tensor([network.as_sample(list(range(10, 30)))] * 2)
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    inputs = (ids, mask, torch.ones_like(ids)) if network.has_token_types else (ids, mask)
    with torch.inference_mode():
        assert torch.equal(network(*inputs), again.model(*inputs))


def test_an_embedder_of_any_body_is_pooled_as_its_folder_says(tmp_path: Path) -> None:
    """A decoder's body too, whose output layer is left out."""
    folder = hub_folder(tmp_path, "glm4", "AutoModelForCausalLM")
    checkpoint = load_checkpoint(as_embedder(folder, "lasttoken"))
    model = checkpoint.model
    assert isinstance(model, TracedEmbedder)
    assert model.pooling == "last"
    ids = torch.arange(10, 30)[None]
    with torch.inference_mode():
        states = model.network(input_ids=ids).last_hidden_state
        assert torch.equal(model(ids, torch.ones_like(ids)), states[:, -1])


def test_a_decoder_becomes_an_embedder_by_its_body() -> None:
    decoder = tiny_decoder("glm4")
    embedder = embedder_of(decoder)
    assert embedder.network is decoder.network.model
    assert embedder.config.max_positions == decoder.config.max_positions


def test_a_body_of_a_decoder_without_a_pooling_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is read as Glm4ForCausalLM or .* modules\.json"):
        load_checkpoint(hub_folder(tmp_path, "glm4"))
    assert "Glm4ForCausalLM" in recognise(tmp_path).refusal


def test_a_weight_of_no_head_is_refused_by_name(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = hub_folder(tmp_path)
    path = folder / "model.safetensors"
    save_file(load_file(path) | {"encoder.extra.weight": torch.ones(3)}, path, {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"the network has not: encoder\.extra\.weight"):
        load_checkpoint(folder)


def test_places_are_counted_as_the_body_counts_them(tmp_path: Path) -> None:
    """RoBERTa's kind counts behind the id of padding, and passes over padding in a text."""
    checkpoint = load_checkpoint(hub_folder(tmp_path, "data2vec-text"))
    model = checkpoint.model
    assert isinstance(model, TracedEmbedder)
    assert checkpoint.max_tokens == 160 - model.config.pad_token_id - 1
    padding = model.config.pad_token_id
    ids = torch.tensor([[9, padding, 11, 12]])
    assert model.positions(ids).tolist() == [[padding + 1, padding, padding + 2, padding + 3]]


def test_no_pooler_is_left_in_an_embedder(tmp_path: Path) -> None:
    model = load_checkpoint(hub_folder(tmp_path)).model
    assert isinstance(model, TracedEmbedder)
    assert isinstance(model.network.pooler, nn.Identity)


def test_an_encoder_decoder_is_no_reader() -> None:
    """Its body's states are those of a second text, which a folder's texts are not."""
    with pytest.raises(CheckpointError, match="BartModel reads a text twice, in an encoder and a"):
        tiny_reader("bart", TracedEmbedder)
