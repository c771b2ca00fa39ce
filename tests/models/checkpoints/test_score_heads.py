"""What an imported head's outputs are: names, texts or pairs, and what makes scores of logits."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.pipelines.text_classification import TextClassificationPipeline

from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.checkpoints.score_heads import PAIRS, TEXTS, score_head
from models.errors import CheckpointError, SettingError
from models.networks.heads import PairScorer, SequenceClassifier
from service.serving.tasks.task import SCORES
from tests.models.tiny import word_tokenizer

NN = "torch.nn.modules"
IDENTITY, SIGMOID = f"{NN}.linear.Identity", f"{NN}.activation.Sigmoid"
REGRESSION = {"problem_type": "regression"}


def declared(activation: str | None) -> dict[str, Any]:
    """A config.json of sentence-transformers 4 and later."""
    section = {} if activation is None else {"activation_fn": activation}
    return {"sentence_transformers": {**section, "version": "4.0.1"}}


def declared_before(activation: str | None) -> dict[str, Any]:
    return {"sbert_ce_default_activation_function": activation}


@pytest.mark.parametrize(
    ("values", "task", "function"),
    [
        ({}, PAIRS, "sigmoid"),
        (REGRESSION, TEXTS, "identity"),
        ({"problem_type": "single_label_classification"}, PAIRS, "sigmoid"),
        (declared(None), PAIRS, "sigmoid"),
        (declared(IDENTITY), PAIRS, "identity"),
        (declared(SIGMOID), PAIRS, "sigmoid"),
        (declared_before(IDENTITY), PAIRS, "identity"),
        (declared_before(None), PAIRS, "sigmoid"),
        (declared(SIGMOID) | declared_before(IDENTITY), PAIRS, "sigmoid"),
        (declared(IDENTITY) | REGRESSION, PAIRS, "identity"),
        (declared(SIGMOID) | REGRESSION, PAIRS, "sigmoid"),
    ],
)
def test_one_output_is_of_pairs_unless_the_folder_says_regression_and_no_cross_encoder(
    tmp_path: Path, values: dict[str, Any], task: str, function: str
) -> None:
    head = score_head(values, 1, tmp_path)
    assert (head.task, head.score_function) == (task, function)


@pytest.mark.parametrize(("activation", "function"), [(IDENTITY, "identity"), (None, "sigmoid")])
def test_a_cross_encoder_s_own_file_comes_before_config_json(
    tmp_path: Path, activation: str | None, function: str
) -> None:
    own = {"model_type": "CrossEncoder", "activation_fn": activation}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(own))
    assert score_head(REGRESSION, 1, tmp_path).score_function == function
    later = declared(SIGMOID)
    assert score_head(later, 1, tmp_path).score_function == function
    (tmp_path / "config_sentence_transformers.json").write_text('{"model_type": "other"}')
    assert score_head(later, 1, tmp_path).score_function == "sigmoid"


@pytest.mark.parametrize("task", [TEXTS, PAIRS])
@pytest.mark.parametrize("values", [{}, REGRESSION, declared(IDENTITY)])
def test_a_task_that_is_named_decides_between_texts_and_pairs(
    tmp_path: Path, values: dict[str, Any], task: str
) -> None:
    head = score_head(values, 1, tmp_path, task)
    expected = "identity" if values else "sigmoid"
    assert (head.task, head.score_function, head.labels) == (task, expected, ("LABEL_0",))


def test_several_outputs_score_no_pairs(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="task is 'pair-scoring', but must be auto or text-c"):
        score_head({}, 2, tmp_path, PAIRS)
    assert score_head(declared(IDENTITY), 2, tmp_path).score_function == "softmax"


@pytest.mark.parametrize(
    ("problem", "num_outputs"),
    [
        *((None, 1), (None, 3), ("regression", 1), ("regression", 3)),
        *(("multi_label_classification", 1), ("multi_label_classification", 3)),
        ("single_label_classification", 3),  # of one output transformers refuses it
    ],
)
def test_scores_are_those_of_the_pipeline_of_transformers(
    tmp_path: Path, problem: Any, num_outputs: int
) -> None:
    """With labels in another order in the file than those of the logits."""
    names = dict(reversed(list(enumerate("abc"[:num_outputs]))))
    logits = torch.randn(num_outputs, generator=torch.Generator().manual_seed(1))
    config = transformers.BertConfig(id2label=names, problem_type=problem)
    pipeline: Any = SimpleNamespace(model=SimpleNamespace(config=config))
    postprocess: Any = TextClassificationPipeline.postprocess  # it has no types
    answers = postprocess(pipeline, {"logits": logits[None]}, top_k=None, _legacy=False)
    head = score_head({"problem_type": problem, "id2label": names}, num_outputs, tmp_path, TEXTS)
    scores = SCORES[head.score_function](logits.numpy()[None])[0]
    expected = {answer["label"]: answer["score"] for answer in answers}
    found = dict(zip(head.labels, scores.tolist(), strict=True))
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (declared(f"{NN}.activation.ReLU"), "activation_fn is 'torch.nn.modules.activation.ReLU'"),
        (declared("os.Sigmoid"), "is 'os.Sigmoid', but must be torch.nn.Sigmoid or torch.nn.Ident"),
        (declared_before("x" * 10_000), r"is 'x{99}\.\.\., but must be"),
        ({"id2label": {"0": "a", "1": "b"}}, "id2label has 2 labels and the head 1 outputs"),
        ({"problem_type": "ranking"}, "problem_type is 'ranking', but must be one of"),
    ],
)
def test_what_a_head_cannot_say_is_refused_with_the_way_out(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        score_head(values, 1, tmp_path)
    assert "config.json" in str(caught.value)
    assert "it cannot be imported" in str(caught.value)


SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 24,
}


def write(folder: Path, **values: Any) -> Any:
    """A folder of a BERT with a head; its network."""
    config = transformers.BertConfig(**SIZES, **values)
    network: Any = transformers.BertForSequenceClassification(config)
    network.train(False).save_pretrained(folder)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    return network


def test_a_cross_encoder_of_2026_is_a_scorer_of_pairs_and_stays_one(tmp_path: Path) -> None:
    """Its modules.json has an encoder and no pooling; what it says survives our own folder."""
    network = write(tmp_path / "hub", num_labels=1)
    modules = [{"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}]
    (tmp_path / "hub" / "modules.json").write_text(json.dumps(modules))
    own = {"model_type": "CrossEncoder", "activation_fn": IDENTITY}
    (tmp_path / "hub" / "config_sentence_transformers.json").write_text(json.dumps(own))
    save_checkpoint(load_checkpoint(tmp_path / "hub"), tmp_path / "ours")
    checkpoint = load_checkpoint(tmp_path / "ours")
    assert isinstance(checkpoint.model, PairScorer)
    assert (checkpoint.task, checkpoint.labels) == (PAIRS, ())
    assert checkpoint.model.score_function == "identity"
    ids = torch.randint(4, 40, (3, 9))
    with torch.inference_mode():
        ours = checkpoint.model(ids, torch.ones_like(ids), torch.zeros_like(ids))
        theirs = network(ids).logits
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-5)


def test_one_output_that_is_imported_for_texts_keeps_its_label(tmp_path: Path) -> None:
    write(tmp_path, id2label={0: "quality"})
    checkpoint = load_checkpoint(tmp_path, task=TEXTS)
    assert type(checkpoint.model) is SequenceClassifier
    assert (checkpoint.labels, checkpoint.model.score_function) == (("quality",), "sigmoid")
    assert load_checkpoint(tmp_path).task == PAIRS
