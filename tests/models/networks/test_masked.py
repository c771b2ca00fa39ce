"""Filling masks: the scores of transformers, of masks only; kept in checkpoints, with its use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor
from typer.testing import Result

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.data.word_pieces import train_word_pieces
from models.errors import CheckpointError, SettingError
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import SequenceClassifier, TextEmbedder
from models.networks.masked import MaskedLanguageModel
from models.recipes.finetune import classifier_from
from tests.models.checkpoints.test_huggingface import (
    BERT_SIZES,
    DISENTANGLED,
    DISTILBERT_SIZES,
    NO_SPECIAL_TOKENS,
    WINDOWS,
    edit_json,
)

TOLERANCE = 1e-5
MASK_ID = 4
LENGTHS = (22, 3, 9)
MODELS: dict[str, tuple[Any, str]] = {
    "bert": (transformers.BertForMaskedLM(transformers.BertConfig(**BERT_SIZES)), "[MASK]"),
    "pretraining": (
        transformers.BertForPreTraining(transformers.BertConfig(**BERT_SIZES)),
        "[MASK]",
    ),
    "roberta": (
        transformers.RobertaForMaskedLM(
            transformers.RobertaConfig(**BERT_SIZES, type_vocab_size=1)
        ),
        "<mask>",
    ),
    "modernbert": (
        transformers.ModernBertForMaskedLM(
            transformers.ModernBertConfig(**BERT_SIZES, **NO_SPECIAL_TOKENS, **WINDOWS)
        ),
        "[MASK]",
    ),
    "electra": (
        transformers.ElectraForMaskedLM(
            transformers.ElectraConfig(**BERT_SIZES, embedding_size=16)
        ),
        "[MASK]",
    ),
    "albert": (
        transformers.AlbertForMaskedLM(transformers.AlbertConfig(**BERT_SIZES, embedding_size=16)),
        "[MASK]",
    ),
    "mpnet": (transformers.MPNetForMaskedLM(transformers.MPNetConfig(**BERT_SIZES)), "<mask>"),
    "deberta-v2": (
        transformers.DebertaV2ForMaskedLM(
            transformers.DebertaV2Config(**BERT_SIZES, **DISENTANGLED)
        ),
        "[MASK]",
    ),
    "deberta-v3": (
        transformers.DebertaV2ForMaskedLM(
            transformers.DebertaV2Config(**BERT_SIZES, **DISENTANGLED, legacy=False)
        ),
        "[MASK]",
    ),
    "nomic_bert": (
        transformers.NomicBertForMaskedLM(transformers.NomicBertConfig(**BERT_SIZES)),
        "[MASK]",
    ),
    "gte": (
        transformers.GteForMaskedLM(transformers.GteConfig(**BERT_SIZES, pad_token_id=0)),
        "<mask>",
    ),
    "distilbert": (
        transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(**DISTILBERT_SIZES)),
        "[MASK]",
    ),
}


@pytest.fixture
def pieces() -> Tokenizer:
    return train_word_pieces(["the cat sat. the dog ran. a hen hid."], 40)


def saved(folder: Path, kind: str, tokenizer: Tokenizer) -> tuple[Path, Any]:
    """A random model of transformers, with a tokenizer whose mask is spelt as its family's.

    So are the tokens around texts of MPNet, whose rules add those that a vocabulary lacks.
    """
    model, mask = MODELS[kind]
    torch.manual_seed(7)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.eval().save_pretrained(folder)
    text = tokenizer.to_str().replace('"[MASK]"', f'"{mask}"')
    if kind == "mpnet":
        text = text.replace('"[CLS]"', '"<s>"').replace('"[SEP]"', '"</s>"')
    (folder / "tokenizer.json").write_text(text)
    return folder, model


def masked_batch(pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Rows of random tokens, every third of which is a mask."""
    generator = torch.Generator().manual_seed(5)
    shape = len(LENGTHS), max(LENGTHS)
    input_ids = torch.randint(5, 40, shape, generator=generator)
    input_ids[:, 1::3] = MASK_ID
    attention_mask = (torch.arange(shape[1]) < torch.tensor(LENGTHS)[:, None]).long()
    return input_ids.where(attention_mask == 1, torch.tensor(pad_token_id)), attention_mask


@pytest.mark.parametrize("kind", MODELS)
def test_scores_of_masks_equal_those_of_transformers(
    tmp_path: Path, pieces: Tokenizer, kind: str
) -> None:
    """Of the masks alone, one after the other, and through our own folder too."""
    folder, reference = saved(tmp_path / "theirs", kind, pieces)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.task == "fill-mask"
    save_checkpoint(checkpoint, tmp_path / "ours")
    input_ids, attention_mask = masked_batch(reference.config.pad_token_id)
    with torch.inference_mode():
        theirs = reference(input_ids=input_ids, attention_mask=attention_mask)
        expected = theirs[0][input_ids == MASK_ID]
        for loaded in (checkpoint, load_checkpoint(tmp_path / "ours")):
            assert isinstance(loaded.model, MaskedLanguageModel)
            found = loaded.model(input_ids, attention_mask)
            assert found.shape == (7 + 1 + 3, 40)
            assert (found - expected).abs().max() < TOLERANCE
            relation = loaded.model.next_sentence
            assert (relation is not None) == (kind == "pretraining")
            if relation is not None:
                states = loaded.model.encoder(input_ids, attention_mask)
                assert (relation(states[-1]) - theirs[1]).abs().max() < TOLERANCE


def test_without_a_mask_in_its_tokenizer_a_checkpoint_gives_up_its_encoder(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    folder, _ = saved(tmp_path, "bert", tokenizer)
    assert isinstance(load_checkpoint(folder).model, TextEmbedder)


def test_an_output_layer_of_its_own_is_refused(tmp_path: Path, pieces: Tokenizer) -> None:
    folder, _ = saved(tmp_path, "bert", pieces)
    edit_json(folder / "config.json", tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match="tie_word_embeddings is False, but only True"):
        load_checkpoint(folder)


def test_a_mask_outside_the_vocabulary_is_refused(config: EncoderConfig) -> None:
    with pytest.raises(SettingError, match="mask_token_id is 32, but must be from 0 to 31"):
        MaskedLanguageModel(Encoder(config), 32)


@pytest.mark.parametrize("has_relation", [True, False])
def test_a_classifier_begins_with_the_encoder_and_what_pooled_in_pretraining(
    config: EncoderConfig, tokenizer: Tokenizer, *, has_relation: bool
) -> None:
    model = MaskedLanguageModel(Encoder(config), 4, next_sentence=has_relation).eval()
    base = Checkpoint(model, "fill-mask", (), tokenizer, 12, "tiny")
    tuned, labels = classifier_from(base, ("ham", "spam"))
    assert isinstance(tuned, SequenceClassifier)
    assert labels == ("ham", "spam")
    assert tuned.head.pooling == "cls"
    for name, weight in model.encoder.state_dict().items():
        assert torch.equal(tuned.encoder.state_dict()[name], weight)
    if model.next_sentence is not None:
        assert torch.equal(tuned.head.dense.weight, model.next_sentence.dense.weight)


def test_the_command_imports_it_to_fill_masks_or_to_embed(
    run: Callable[..., Result], tmp_path: Path, pieces: Tokenizer
) -> None:
    folder, _ = saved(tmp_path / "theirs", "pretraining", pieces)
    for flags, task in (((), "fill-mask"), (("--task", "embedding"), "embedding")):
        result = run("import", folder, tmp_path / task, *flags)
        assert result.exit_code == 0, result.output
        assert load_checkpoint(tmp_path / task).task == task
    refused = run("import", folder, tmp_path / "other", "--task", "text-classification")
    assert refused.exit_code == 2
    message = " ".join(refused.output.replace("│", "").split())
    assert "has no head for text-classification, train one" in message
