"""Parity with transformers on random weights, and the variants of config.json and weight names."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from models.checkpoints.checkpoint import CheckpointError, load_checkpoint
from models.networks.heads import SequenceClassifier, TextEmbedder
from models.networks.readers import QuestionAnswerer, TokenClassifier

BERT_SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 24,
    "initializer_range": 0.5,  # large, so that a wrong wire shows
}
DISTILBERT_SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "dim": 24,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 40,
    "max_position_embeddings": 24,
    "initializer_range": 0.5,
}
THREE_LABELS: dict[str, Any] = {"num_labels": 3}
NO_SPECIAL_TOKENS: dict[str, Any] = {  # the defaults of some are beyond so small a vocabulary
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
    "cls_token_id": None,
    "sep_token_id": None,
}
WINDOWS: dict[str, Any] = {
    "initializer_cutoff_factor": 2.0,
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
}
DISENTANGLED: dict[str, Any] = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_buckets": 4,
    "position_biased_input": False,
}
CONFIGS = {
    "bert": transformers.BertConfig(**BERT_SIZES, **THREE_LABELS),
    "roberta": transformers.RobertaConfig(**BERT_SIZES, **THREE_LABELS, type_vocab_size=1),
    "xlm-roberta": transformers.XLMRobertaConfig(
        **BERT_SIZES, **THREE_LABELS, hidden_act="gelu_new"
    ),
    "distilbert": transformers.DistilBertConfig(**DISTILBERT_SIZES, **THREE_LABELS),
    "modernbert": transformers.ModernBertConfig(
        **BERT_SIZES,
        **THREE_LABELS,
        **NO_SPECIAL_TOKENS,
        **WINDOWS,
    ),
    "nomic_bert": transformers.NomicBertConfig(**BERT_SIZES, **THREE_LABELS),
    "electra": transformers.ElectraConfig(**BERT_SIZES, **THREE_LABELS, embedding_size=16),
    "albert": transformers.AlbertConfig(**BERT_SIZES, **THREE_LABELS, embedding_size=16),
    "mpnet": transformers.MPNetConfig(**BERT_SIZES, **THREE_LABELS),
    "deberta-v2": transformers.DebertaV2Config(**BERT_SIZES, **THREE_LABELS, **DISENTANGLED),
    "gte": transformers.GteConfig(**BERT_SIZES, **THREE_LABELS, pad_token_id=0),
}
KINDS = tuple(CONFIGS)
ANSWERERS = tuple(kind for kind in KINDS if kind not in ("nomic_bert", "gte"))  # have the class
AUTO_ENCODER: Any = transformers.AutoModel  # its methods have no types
AUTO_CLASSIFIER: Any = transformers.AutoModelForSequenceClassification
LENGTHS = (22, 1, 9, 15)  # 22: all positions that RoBERTa has
TOLERANCE = 1e-5  # of the largest value, and of 1 where all are smaller: some 80 steps of float32

Save = Callable[..., Path]


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest one, over the largest value of theirs where that is above 1."""
    return float((ours - theirs).abs().max() / max(1.0, float(theirs.abs().max())))


def encoder_of(kind: str) -> transformers.PreTrainedModel:
    torch.manual_seed(4)
    model: transformers.PreTrainedModel = AUTO_ENCODER.from_config(CONFIGS[kind]).eval()
    return model


def classifier_of(kind: str) -> transformers.PreTrainedModel:
    torch.manual_seed(4)
    model: transformers.PreTrainedModel = AUTO_CLASSIFIER.from_config(CONFIGS[kind]).eval()
    return model


def reader_of(kind: str, auto: Any) -> transformers.PreTrainedModel:
    torch.manual_seed(4)
    config = copy.deepcopy(CONFIGS[kind])
    if auto is transformers.AutoModelForQuestionAnswering:
        config.num_labels = 2
    model: transformers.PreTrainedModel = auto.from_config(config).eval()
    return model


@pytest.fixture
def save(tmp_path: Path, tokenizer: Tokenizer) -> Save:
    """Write a transformers model with a tokenizer; keywords replace fields of config.json."""

    def write(model: transformers.PreTrainedModel, **changes: object) -> Path:
        model.save_pretrained(tmp_path)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        edit_json(tmp_path / "config.json", **changes)
        return tmp_path

    return write


def edit_json(path: Path, **changes: object) -> None:
    """Replace fields of a JSON object; None removes one."""
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))


def ragged_batch(pad_token_id: int) -> tuple[Tensor, Tensor]:
    """Right-padded rows of LENGTHS random tokens."""
    generator = torch.Generator().manual_seed(5)
    input_ids = torch.randint(4, 40, (len(LENGTHS), max(LENGTHS)), generator=generator)
    attention_mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    return input_ids.where(attention_mask == 1, torch.tensor(pad_token_id)), attention_mask


@pytest.mark.parametrize("kind", KINDS)
def test_every_hidden_state_equals_that_of_transformers(save: Save, kind: str) -> None:
    reference = encoder_of(kind)
    checkpoint = load_checkpoint(save(reference))
    assert isinstance(checkpoint.model, TextEmbedder)
    input_ids, attention_mask = ragged_batch(reference.config.pad_token_id)

    with torch.inference_mode():
        ours = checkpoint.model.encoder(input_ids, attention_mask)
        theirs = reference(
            input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True
        ).hidden_states

    assert len(ours) == len(theirs) == 4
    real = attention_mask.bool()
    for our_state, their_state in zip(ours, theirs, strict=True):
        assert difference(our_state[real], their_state[real]) < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_transformers(save: Save, kind: str) -> None:
    reference = classifier_of(kind)
    checkpoint = load_checkpoint(save(reference))
    assert isinstance(checkpoint.model, SequenceClassifier)
    assert checkpoint.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    input_ids, attention_mask = ragged_batch(reference.config.pad_token_id)

    with torch.inference_mode():
        ours = checkpoint.model(input_ids, attention_mask)
        theirs = reference(input_ids=input_ids, attention_mask=attention_mask).logits

    assert difference(ours, theirs) < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_tokens_equal_those_of_transformers(save: Save, kind: str) -> None:
    reference = reader_of(kind, transformers.AutoModelForTokenClassification)
    checkpoint = load_checkpoint(save(reference))
    assert isinstance(checkpoint.model, TokenClassifier)
    assert checkpoint.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    input_ids, attention_mask = ragged_batch(reference.config.pad_token_id)
    with torch.inference_mode():
        ours = checkpoint.model(input_ids, attention_mask)
        theirs = reference(input_ids=input_ids, attention_mask=attention_mask).logits
    assert difference(ours, theirs[attention_mask != 0]) < TOLERANCE


@pytest.mark.parametrize("kind", ANSWERERS)
def test_starts_and_ends_of_answers_equal_those_of_transformers(save: Save, kind: str) -> None:
    reference = reader_of(kind, transformers.AutoModelForQuestionAnswering)
    checkpoint = load_checkpoint(save(reference))
    assert isinstance(checkpoint.model, QuestionAnswerer)
    assert (checkpoint.task, checkpoint.labels) == ("question-answering", ())
    input_ids, attention_mask = ragged_batch(reference.config.pad_token_id)
    with torch.inference_mode():
        ours = checkpoint.model(input_ids, attention_mask)
        theirs = reference(input_ids=input_ids, attention_mask=attention_mask)
    packed = torch.stack([theirs.start_logits, theirs.end_logits], dim=-1)[attention_mask != 0]
    assert difference(ours, packed) < TOLERANCE


def test_token_types_equal_those_of_transformers(save: Save) -> None:
    checkpoint = load_checkpoint(save(classifier_of("bert")))
    input_ids, attention_mask = ragged_batch(0)
    types = input_ids % 2
    with torch.inference_mode():
        ours = checkpoint.model(input_ids, attention_mask, types)
        theirs = classifier_of("bert")(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=types
        ).logits
    assert difference(ours, theirs) < TOLERANCE


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_sentence_transformers_folder_embeds_as_it_declares(
    save: Save, pooling: str, normalize: bool
) -> None:
    """MiniLM-type: BERT, pooled over real tokens, of length 1 if there is a Normalize module."""
    folder = save(encoder_of("bert"))
    declare_embedder(folder, pooling, normalize=normalize)

    checkpoint = load_checkpoint(folder)

    input_ids, attention_mask = ragged_batch(0)
    with torch.inference_mode():
        ours = checkpoint.model(input_ids, attention_mask)
        hidden = encoder_of("bert")(input_ids=input_ids, attention_mask=attention_mask)[0]
    rows = [row[:length] for row, length in zip(hidden, LENGTHS, strict=True)]
    pooled = torch.stack([row[0] if pooling == "cls" else row.mean(dim=0) for row in rows])
    expected = pooled / pooled.norm(dim=-1, keepdim=True) if normalize else pooled
    assert difference(ours, expected) < TOLERANCE
    assert checkpoint.task == "embedding"
    assert checkpoint.max_tokens == 16


def declare_embedder(folder: Path, pooling: str, *, normalize: bool) -> None:
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(steps[: 3 if normalize else 2])
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    flags = {
        "word_embedding_dimension": 24,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(flags))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')


def test_weight_names_of_2018_load(save: Save) -> None:
    """A prefix on every name, gamma and beta in norms, and stored position ids."""
    folder = save(encoder_of("bert"))
    expected = load_checkpoint(folder).model.state_dict()
    old = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(24)[None]
    old["cls.predictions.bias"] = torch.zeros(40)
    save_file(old, folder / "model.safetensors")

    found = load_checkpoint(folder).model.state_dict()

    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_encoder_of_another_task_embeds(save: Save) -> None:
    checkpoint = load_checkpoint(
        save(transformers.BertForMaskedLM(transformers.BertConfig(**BERT_SIZES)))
    )
    assert isinstance(checkpoint.model, TextEmbedder)
    assert checkpoint.model.pooling == "mean"


def test_half_precision_weights_become_float32(save: Save) -> None:
    folder = save(encoder_of("bert"))
    halves = {k: t.half() for k, t in load_file(folder / "model.safetensors").items()}
    save_file(halves, folder / "model.safetensors")
    state = load_checkpoint(folder).model.state_dict()
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}


def test_labels_come_in_the_order_of_the_logits(save: Save) -> None:
    names = {"2": "joy", "0": "anger", "1": "fear"}
    checkpoint = load_checkpoint(save(classifier_of("bert"), id2label=names))
    assert checkpoint.labels == ("anger", "fear", "joy")


def test_absent_and_default_fields_load(save: Save) -> None:
    """`transformers` 5 leaves out what has its default; earlier versions write it."""
    absent = save(
        classifier_of("bert"), id2label=None, label2id=None, is_decoder=None, layer_norm_eps=None
    )
    assert load_checkpoint(absent).labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    written = save(classifier_of("bert"), position_embedding_type="absolute", architectures=None)
    assert load_checkpoint(written).task == "text-classification"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("position_embedding_type", "relative_key", "'relative_key', but only 'absolute'"),
        ("is_decoder", True, "is_decoder is True, but only False"),
        (
            "model_type",
            "wav2vec2",
            "'wav2vec2', but must be one of bert, roberta, xlm-roberta, camembert, distilbert, ",
        ),
        ("hidden_act", "mish", "hidden_act is 'mish', but must be one of gelu"),
        ("problem_type", "ordinal", "problem_type is 'ordinal', but must be one of single_label_"),
        ("problem_type", ["regression"], "problem_type is ['regression'], but must be one of"),
        ("id2label", {"0": "a", "2": "b"}, "id2label has 2 labels and the head 3 outputs"),
        ("hidden_size", None, "no field 'hidden_size'"),
        (
            "hidden_size",
            "wide",
            "field of the wrong type: hidden_size is 'wide', but must be a number",
        ),
        ("layer_norm_eps", "small", "layer_norm_eps is 'small', but must be a number"),
        (
            "quantization_config",
            {"bits": 4},
            "quantization_config is not supported, and is {'bits': 4}",
        ),
        ("num_attention_heads", 5, "num_heads is 5, but must be a divisor of hidden_size 24"),
    ],
)
def test_what_would_be_computed_differently_is_refused_by_name(
    save: Save, field: str, value: object, message: str
) -> None:
    folder = save(classifier_of("bert"), **{field: value})
    with pytest.raises(CheckpointError, match=r"config\.json") as caught:
        load_checkpoint(folder)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "field", "value", "message"),
    [
        ("deberta-v2", "conv_kernel_size", 3, "conv_kernel_size is 3, but must be absent or 0"),
        ("deberta-v2", "share_att_key", False, "share_att_key is False, but must be true"),
        ("deberta-v2", "relative_attention", False, "relative_attention is False, but must be"),
        ("deberta-v2", "pos_att_type", "c2p", "pos_att_type is 'c2p', but must be c2p and p2c"),
        ("deberta-v2", "embedding_size", 16, "embedding_size is 16, but must be 24"),
        ("albert", "num_hidden_groups", 2, "num_hidden_groups is 2, but must be a divisor of"),
        ("albert", "inner_group_num", 2, "inner_group_num is 2, but only 1 is supported"),
        ("mpnet", "relative_attention_num_buckets", 64, "num_buckets is 64, but must be 32"),
    ],
)
def test_what_a_family_alone_has_is_refused_by_name(
    save: Save, kind: str, field: str, value: object, message: str
) -> None:
    folder = save(encoder_of(kind), **{field: value})
    with pytest.raises(CheckpointError, match=r"config\.json") as caught:
        load_checkpoint(folder)
    assert message in str(caught.value)


def test_a_discriminator_of_electra_embeds(save: Save) -> None:
    """Its own head says which tokens were replaced, which is no task of a server."""
    torch.manual_seed(4)
    discriminator = transformers.ElectraForPreTraining(CONFIGS["electra"])  # type: ignore[arg-type]
    assert isinstance(load_checkpoint(save(discriminator)).model, TextEmbedder)


def test_missing_and_unexpected_weights_are_named(save: Save) -> None:
    folder = save(classifier_of("bert"))
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.encoder.layer.9.rotary"] = tensors.pop("bert.encoder.layer.1.output.dense.bias")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert "1 missing: encoder.layer.1.output.dense.bias" in str(caught.value)
    assert "1 unexpected: encoder.layer.9.rotary" in str(caught.value)


def test_weights_of_another_size_are_named(save: Save) -> None:
    folder = save(classifier_of("bert"), intermediate_size=48)
    with pytest.raises(CheckpointError, match=r"intermediate\.dense\.weight has shape \[40, 24\]"):
        load_checkpoint(folder)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_named(save: Save, number: float) -> None:
    folder = save(classifier_of("bert"))
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.encoder.layer.1.output.dense.bias"][3] = number
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"1\.output\.dense\.bias has 1 of 24 numbers that"):
        load_checkpoint(folder)


@pytest.mark.parametrize(("declared", "expected"), [(None, 24), (20, 20), (10**30, 24)])
def test_the_longest_row_is_the_least_that_anything_allows(
    save: Save, declared: int | None, expected: int
) -> None:
    folder = save(encoder_of("bert"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": declared}))
    assert load_checkpoint(folder).max_tokens == expected


def test_robertas_positions_before_the_first_are_not_counted(save: Save) -> None:
    checkpoint = load_checkpoint(save(encoder_of("roberta")))
    assert checkpoint.encoder_model.config.position_offset == 2
    assert checkpoint.max_tokens == 24 - 2


def test_a_tokenizer_that_the_encoder_cannot_embed_is_refused(save: Save) -> None:
    small = transformers.BertModel(transformers.BertConfig(**{**BERT_SIZES, "vocab_size": 10}))
    with pytest.raises(CheckpointError, match="vocabulary size is 15, but must be at most"):
        load_checkpoint(save(small))
